package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
)

const (
	storePath = "/-/v1/stores/bench"
	itemsPath = storePath + "/items/"
	// itemsThere is how many items the store has; each put replaces one.
	itemsThere = 10_000
	perBatch   = 100
)

// anItem names one of the items that are there.
func anItem(r *rand.Rand) string { return "item-" + strconv.Itoa(r.IntN(itemsThere)) }

// fillStore makes the store and its items, and returns what each put sends: a
// value of so many bytes, which do not compress.
func fillStore(sidecar string, r *rand.Rand, valueLen int) ([]byte, error) {
	value := base64.RawURLEncoding.EncodeToString(noise(r, valueLen))[:max(0, valueLen-2)]
	if _, err := tell("PUT", sidecar, storePath, ""); err != nil {
		return nil, err
	}
	for n := 0; n < itemsThere; n += perBatch {
		operations := make([]string, perBatch)
		for i := range operations {
			operations[i] = fmt.Sprintf(`{"op":"put","key":"item-%d","value":"%s"}`, n+i, value)
		}
		if _, err := tell("POST", sidecar, storePath+"/batch", `{"operations":[`+strings.Join(operations, ",")+`]}`); err != nil {
			return nil, err
		}
	}
	return []byte(`{"value":"` + value + `"}`), nil
}

const (
	leasePath = "/-/v1/runs/bench-lease/lease"
	// leaseSeconds outlives the benchmark.
	leaseSeconds = 86_400
)

// acquireLease takes a run's lease and returns what each renewal sends.
func acquireLease(sidecar string) ([]byte, error) {
	body, err := tell("POST", sidecar, leasePath, fmt.Sprintf(`{"owner":"bench","ttl_seconds":%d}`, leaseSeconds))
	if err != nil {
		return nil, err
	}
	var lease struct {
		Fence uint64 `json:"fence"`
	}
	if err := json.Unmarshal(body, &lease); err != nil {
		return nil, fmt.Errorf("reading the lease: %w", err)
	}
	return fmt.Appendf(nil, `{"fence":%d,"ttl_seconds":%d}`, lease.Fence, leaseSeconds), nil
}

// tell asks the agent API for something once, and returns the answer's body.
func tell(method, address, path, body string) ([]byte, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(method)
	req.SetRequestURI("http://" + address + path)
	req.SetBodyString(body)
	if err := fasthttp.DoTimeout(req, resp, startPatience); err != nil {
		return nil, err
	}
	if status := resp.StatusCode(); status/100 != 2 {
		return nil, fmt.Errorf("%s %s: status %d: %.200s", method, path, status, resp.Body())
	}
	return append([]byte(nil), resp.Body()...), nil
}
