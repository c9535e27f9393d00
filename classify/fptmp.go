package classify

// A Fingerprint is what a request asks for, as a SHA-256.
type Fingerprint [32]byte
