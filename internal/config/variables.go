package config

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

const prefix = "COUNTERFOIL_"

// foreign are variables with our prefix that are not settings.
var foreign = []string{
	// What sidecar exec tells an agent: where its sidecar is, and which life of
	// which run it is.
	"COUNTERFOIL_URL", "COUNTERFOIL_FENCE", "COUNTERFOIL_INCARNATION",
}

// orchestrated matches what Kubernetes, and Docker's links, put into the
// environment for a service whose name begins with counterfoil.
var orchestrated = regexp.MustCompile(`^COUNTERFOIL_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// unknownVariables complains of variables that look like ours and are not.
func (l *loader) unknownVariables() {
	known := slices.Clone(foreign)
	for _, f := range variableFields(reflect.TypeFor[Config]()) {
		known = append(known, f.Tag.Get("env"))
	}
	for _, name := range slices.Sorted(maps.Keys(l.environ)) {
		if strings.HasPrefix(name, prefix) && !slices.Contains(known, name) && !isOrchestrated(name, l.environ[name]) {
			l.complain(place{source: name}, "unknown variable%s", suggestion(name, known))
		}
	}
}

func isOrchestrated(name, value string) bool {
	return orchestrated.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// suggestion ends a complaint about a name that nobody knows.
func suggestion(name string, known []string) string {
	best, least := "", 1+len(name)/3
	for _, k := range known {
		if d := distance(name, k); d <= least && (best == "" || d < distance(name, best)) {
			best = k
		}
	}
	if best == "" {
		return "; understood here: " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
	}
	return ": did you mean " + best + "?"
}

// nameBytesMax bounds the work of a comparison: no name of ours is longer.
const nameBytesMax = 64

// distance is how many characters must be put in, taken out or changed to make
// b of a (Levenshtein).
func distance(a, b string) int {
	if len(a) > nameBytesMax || len(b) > nameBytesMax {
		return nameBytesMax
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
