// Package storetest holds what every journal store is tested with: [Run], the
// conformance suite of [keystore.Store], and [Memory], a small store that
// forgets what was not synced. Neither is ever linked into the program.
//
// A [Disk] is what survives a crash, so a test of a crash is
//
//	disk := storetest.NewDisk()
//	store, err := storetest.OpenMemory(disk, clock.Now)
//	…
//	store.Crash()
//	store, err = storetest.OpenMemory(disk, clock.Now) // the next epoch
//
// and [Disk.Fail] makes the nth operation of a kind fail, before or after it
// became durable.
package storetest
