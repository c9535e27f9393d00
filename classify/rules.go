package classify

import "strings"

// Approval says whether a person must agree before a request is sent.
type Approval uint8

const (
	// NoApproval is the default: nobody is asked.
	NoApproval Approval = iota
	// ApprovalRequired holds the call until it is approved.
	ApprovalRequired
)

// A Rule is what an upstream's config says about some of its requests.
type Rule struct {
	Match Match
	// Class of the requests; 0 leaves it to the adapter and the method.
	Class    Class
	Approval Approval
}

// Rules are an upstream's rules in order: the first that matches a request
// decides.
//
// Patterns are compared with the path as it is sent, but a provider may read a
// path in other ways than it is written. Two things follow.
//
//  1. A path that can be read in more than one way (dot segments, also spelt
//     %2e; empty segments; %2F, backslash or semicolon; a percent-encoded
//     letter, digit, - . _ ~ or %; white space and control characters; a
//     number sign; malformed encodings and UTF-8) is never granted a class
//     laxer than its method's, by no rule and no operation: a POST to
//     /search/%2e%2e/refunds is an effect whatever is said about /search/**.
//  2. A rule that is stricter, or asks for approval, also holds for a path
//     that one of those readings turns into a match: /%72efunds, //refunds,
//     /refunds/ and /refunds;x=1 are held like /refunds.
//
// Strictness grows in the order [Read], [Decision], [Keyed], [Idempotent],
// [Effect]. A provider that takes upper and lower case for the same path needs
// a rule for each spelling it wants held.
//
// A header that changes the method (X-HTTP-Method-Override and its like) is
// taken at its word where it makes a request stricter.
type Rules []Rule

// Class returns the class of r: by the first rule that matches and names one,
// else operation (what the adapter says; 0 = nothing), else the method. GET,
// HEAD, OPTIONS and TRACE read, PUT and DELETE are idempotent, everything else
// is an effect.
func (rs Rules) Class(r *Request, operation Class) Class {
	path, floor := r.Path(), methodClass(r.Method)
	class := firstSet(rs.find(r.Method, path).Class, operation, floor)
	if IsAmbiguous(path) {
		class = max(class, floor)
	}
	if seen := overriddenClass(r.Header); seen > Read {
		class = max(class, floor, seen)
	}
	for _, reading := range readings(path) {
		class = max(class, rs.find(r.Method, reading).Class)
	}
	return class
}

// Approval says whether r must be approved before it is sent.
func (rs Rules) Approval(r *Request) Approval {
	path := r.Path()
	approval := rs.find(r.Method, path).Approval
	for _, reading := range readings(path) {
		approval = max(approval, rs.find(r.Method, reading).Approval)
	}
	return approval
}

// find returns the first rule that matches, the zero Rule if none does.
func (rs Rules) find(method, path string) Rule {
	for i := range rs {
		if rs[i].Match.Matches(method, path) {
			return rs[i]
		}
	}
	return Rule{}
}

func firstSet(classes ...Class) Class {
	for _, c := range classes {
		if c != 0 {
			return c
		}
	}
	return Effect
}

// methodClass is the class of a method of which nothing else is known (RFC
// 9110 sections 9.2.1 and 9.2.2). Methods are case-sensitive: get is no GET.
func methodClass(method string) Class {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return Read
	case "PUT", "DELETE":
		return Idempotent
	}
	return Effect
}

// overriddenClass is the class of the method that a header asks the provider to
// put in place of the request's own; 0 if none does.
func overriddenClass(h Header) Class {
	var class Class
	for i := range h {
		if isMethodOverride(h[i].Name) {
			class = max(class, methodClass(strings.ToUpper(h[i].Value)))
		}
	}
	return class
}

func isMethodOverride(name string) bool {
	return strings.EqualFold(name, "X-HTTP-Method-Override") ||
		strings.EqualFold(name, "X-HTTP-Method") ||
		strings.EqualFold(name, "X-Method-Override")
}
