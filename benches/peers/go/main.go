// franz-go's kmsg on the bodies of a folder: peer FOLDER SECONDS, one JSON object a line, in ns a partition.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var sink any

func fresh(api string, version int16) kmsg.Request {
	var r kmsg.Request
	switch api {
	case "updatemetadata":
		r = kmsg.NewPtrUpdateMetadataRequest()
	case "leaderandisr":
		r = kmsg.NewPtrLeaderAndISRRequest()
	default:
		r = kmsg.NewPtrStopReplicaRequest()
	}
	r.SetVersion(version)
	return r
}

// CPU time of the calling thread, which main holds: what the collector does elsewhere is not in it.
func now() int64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// report prints the least CPU time of a call; its name ends in TOPICSxPARTITIONS.
func report(body, op string, seconds float64, work func()) {
	least := int64(1) << 62
	for end := time.Now().Add(time.Duration(seconds * 0.3e9)); ; {
		a := now()
		work()
		if d := now() - a; d < least {
			least = d
		}
		if time.Now().After(end) {
			break
		}
	}
	batch := 1_000_000/(least+1) + 1
	best := float64(least)
	for end := time.Now().Add(time.Duration(seconds * 1e9)); time.Now().Before(end); {
		a := now()
		for i := int64(0); i < batch; i++ {
			work()
		}
		if d := float64(now()-a) / float64(batch); d < best {
			best = d
		}
	}
	var topics, each float64
	_, err := fmt.Sscanf(body[strings.LastIndex(body, "-")+1:], "%fx%f", &topics, &each)
	must(err)
	fmt.Printf("{\"key\": \"go %s %s\", \"value\": %.4f}\n", op, body, best/topics/each)
}

func main() {
	runtime.LockOSThread()
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	must(err)
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.bin"))
	must(err)
	for _, path := range files {
		data, err := os.ReadFile(path)
		must(err)
		name := strings.TrimSuffix(filepath.Base(path), ".bin")
		parts := strings.Split(name, "-")
		number, err := strconv.Atoi(parts[1])
		must(err)
		version := int16(number)
		m := fresh(parts[0], version)
		must(m.ReadFrom(data))
		report(name, "decode", seconds, func() { r := fresh(parts[0], version); must(r.ReadFrom(data)); sink = r })
		kept := make([]byte, 0, len(data))
		// Lengths, for kmsg 1.15.0 has the KRaft flag of StopReplica 4 behind the controller epoch.
		if len(m.AppendTo(kept)) != len(data) {
			must(fmt.Errorf("%s comes back in another length", name))
		}
		report(name, "encode", seconds, func() { kept = m.AppendTo(kept[:0]) })
	}
}
