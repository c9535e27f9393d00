// Package sse reads event streams (WHATWG HTML, section 9.2.6) as they come.
package sse
