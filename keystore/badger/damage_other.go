//go:build !unix

package badger

// isInUse cannot be told here, so logs are not looked through.
func isInUse(string) bool { return true }
