package badger

import (
	"bytes"
	"slices"

	"counterfoil/keystore"
)

// own returns a copy of r that shares no memory that can change with it, so
// that a record in the committer's hands and one in a caller's are two.
func own(r *keystore.Record) *keystore.Record {
	if r == nil {
		return nil
	}
	c := *r
	c.Attempts = slices.Clone(r.Attempts)
	c.History = slices.Clone(r.History)
	c.Intent.Header = slices.Clone(r.Intent.Header)
	c.Intent.Body.Inline = bytes.Clone(r.Intent.Body.Inline)
	if r.Receipt != nil {
		receipt := *r.Receipt
		receipt.Header = slices.Clone(r.Receipt.Header)
		receipt.Body.Inline = bytes.Clone(r.Receipt.Body.Inline)
		if r.Receipt.Usage != nil {
			usage := *r.Receipt.Usage
			receipt.Usage = &usage
		}
		c.Receipt = &receipt
	}
	if r.Approval != nil {
		approval := *r.Approval
		c.Approval = &approval
	}
	return &c
}

func ownIntent(i keystore.Intent) keystore.Intent {
	i.Header = slices.Clone(i.Header)
	i.Body = keystore.Body{}
	return i
}

func ownReceipt(r *keystore.Receipt) *keystore.Receipt {
	if r == nil {
		return nil
	}
	c := *r
	c.Header = slices.Clone(r.Header)
	c.Body.Inline = bytes.Clone(r.Body.Inline)
	return &c
}

func ownBeginning(b *keystore.Beginning) *keystore.Beginning {
	if b == nil {
		return nil
	}
	c := *b
	c.Intent = ownIntent(b.Intent)
	return &c
}
