package keystore

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
)

// ParseETag returns the version whose ETag that is, quotes included, or false:
// then it was never an item's.
func ParseETag(tag string) (ItemVersion, bool) {
	if len(tag) != etagBytes {
		return 0, false
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.Trim(tag, `"`))
	if err != nil || len(b) != 8 {
		return 0, false
	}
	v := ItemVersion(binary.BigEndian.Uint64(b))
	return v, v.ETag() == tag
}

// etagBytes is how long the ETag of a version is.
const etagBytes = 11 + 2
