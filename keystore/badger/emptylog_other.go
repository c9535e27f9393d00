//go:build !unix

package badger

// dropEmptyLogs is for Unix, where Badger locks the directory itself.
func dropEmptyLogs(string) error { return nil }
