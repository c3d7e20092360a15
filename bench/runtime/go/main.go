// The Go peer: one measurement, printed as JSON.
//
// peer-go BENCH YIELDS SPAWNS TRIPS PARKED LEAVES WINDOW_MS HOARD
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	yielders  = 100
	fanOut    = 10
	attackers = 4
	block     = 64 << 10
	tick      = time.Millisecond
)

func main() {
	var work [7]int
	if len(os.Args) != 2+len(work) {
		fail("usage: peer-go BENCH YIELDS SPAWNS TRIPS PARKED LEAVES WINDOW_MS HOARD")
	}
	for i := range work {
		n, err := strconv.Atoi(os.Args[2+i])
		if err != nil {
			fail(err.Error())
		}
		work[i] = n
	}
	window, hoard := time.Duration(work[5])*time.Millisecond, work[6]
	runtime.GOMAXPROCS(2)
	var value float64
	switch bench := os.Args[1]; bench {
	case "yield":
		runtime.GOMAXPROCS(1)
		value = yield(work[0])
	case "spawn":
		value = spawn(work[1])
	case "pingpong":
		runtime.GOMAXPROCS(1)
		value = pingpong(work[2])
	case "memory":
		value = memory(work[3])
	case "skynet":
		value = skynet(work[4])
	default:
		if attack := strings.TrimPrefix(bench, "deadline-"); attack != bench {
			value = hostile(attack, window, hoard, jobs)
			break
		}
		attack := strings.TrimPrefix(bench, "hostile-")
		if attack == bench {
			fail("go takes no part in " + bench)
		}
		value = hostile(attack, window, hoard, ticks)
	}
	fmt.Printf("{\"\": %f}\n", value)
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(2)
}

func nsEach(began time.Time, count int) float64 {
	return float64(time.Since(began).Nanoseconds()) / float64(count)
}

// With one processor that is never idle: the time it took, less what other programs took from it.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		fail(err.Error())
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func processorNsEach(began time.Duration, count int) float64 {
	return float64((processorTime() - began).Nanoseconds()) / float64(count)
}

func yield(each int) float64 {
	began := processorTime()
	var all sync.WaitGroup
	all.Add(yielders)
	for i := 0; i < yielders; i++ {
		go func() {
			for j := 0; j < each; j++ {
				runtime.Gosched()
			}
			all.Done()
		}()
	}
	all.Wait()
	return processorNsEach(began, each*yielders)
}

func spawn(count int) float64 {
	began := time.Now()
	var all sync.WaitGroup
	all.Add(count)
	for i := 0; i < count; i++ {
		go all.Done()
	}
	all.Wait()
	return nsEach(began, count)
}

func pingpong(trips int) float64 {
	began := processorTime()
	to, back := make(chan uint32), make(chan uint32)
	go func() {
		for i := range to {
			back <- i
		}
		close(back)
	}()
	for i := 0; i < trips; i++ {
		to <- uint32(i)
		if <-back != uint32(i) {
			fail("a wrong number came back")
		}
	}
	close(to)
	return processorNsEach(began, trips)
}

func residentBytes() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		fail(err.Error())
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	if err != nil {
		fail(err.Error())
	}
	return pages * 4096
}

func memory(tasks int) float64 {
	before := residentBytes()
	gate := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Add(tasks)
	for i := 0; i < tasks; i++ {
		go func() {
			waiting.Done()
			<-gate
		}()
	}
	waiting.Wait()
	time.Sleep(100 * time.Millisecond)
	return (residentBytes() - before) / float64(tasks)
}

func node(result chan<- int, first, leaves int) {
	if leaves == 1 {
		result <- first
		return
	}
	each := leaves / fanOut
	children := make(chan int, fanOut)
	for i := 0; i < fanOut; i++ {
		go node(children, first+i*each, each)
	}
	sum := 0
	for i := 0; i < fanOut; i++ {
		sum += <-children
	}
	result <- sum
}

func skynet(leaves int) float64 {
	began := time.Now()
	result := make(chan int, 1)
	go node(result, 0, leaves)
	if <-result != leaves*(leaves-1)/2 {
		fail("a wrong sum")
	}
	return float64(time.Since(began).Nanoseconds()) / 1e6
}

// The victim's ticks: the lateness that one in a hundred exceeds, in microseconds.
func ticks(window time.Duration) func() float64 {
	began := time.Now()
	return func() float64 {
		var late []float64
		for due := tick; due <= window; {
			time.Sleep(time.Until(began.Add(due)))
			for now := time.Since(began); due <= now && due <= window; due += tick {
				late = append(late, float64((now-due).Nanoseconds())/1e3)
			}
		}
		sort.Float64s(late)
		return late[(len(late)*99+99)/100-1]
	}
}

var sink atomic.Uint64

func steps(count int) {
	sum := uint64(1)
	for i := 0; i < count; i++ {
		sum = sum*6364136223846793005 + 1
	}
	sink.Store(sum)
}

// The victim's jobs, half a millisecond of work every ten: how many in a hundred missed their deadlines.
func jobs(window time.Duration) func() float64 {
	const period, job, sample = 10 * time.Millisecond, 500 * time.Microsecond, 100_000
	fastest := time.Hour
	for i := 0; i < 20; i++ {
		began := time.Now()
		steps(sample)
		if took := time.Since(began); took < fastest {
			fastest = took
		}
	}
	count := int(sample * int64(job) / (int64(fastest) + 1))
	began := time.Now()
	return func() float64 {
		all, missed := 0, 0
		for released := period; released <= window; released += period {
			time.Sleep(time.Until(began.Add(released)))
			steps(count)
			all++
			if time.Since(began) > released+period {
				missed++
			}
		}
		return 100 * float64(missed) / float64(all)
	}
}

func hostile(attack string, window time.Duration, hoard int, duty func(time.Duration) func() float64) float64 {
	var stop atomic.Bool
	victim := make(chan float64)
	run := duty(window)
	go func() {
		figure := run()
		stop.Store(true)
		victim <- figure
	}()
	if attack != "none" {
		for i := 0; i < attackers; i++ {
			go func() {
				for !stop.Load() {
					strike(attack, hoard)
				}
			}()
		}
	}
	return <-victim
}

func strike(attack string, hoard int) {
	switch attack {
	case "spin":
		for i := 0; i < 1_000_000; i++ {
		}
	case "fork":
		var all sync.WaitGroup
		all.Add(hoard)
		for i := 0; i < hoard; i++ {
			go all.Done()
		}
		all.Wait()
	case "flood":
		queue := make(chan int, hoard)
		for i := 0; i < hoard; i++ {
			queue <- i
		}
	case "alloc":
		blocks := make([][]byte, hoard)
		for i := range blocks {
			blocks[i] = make([]byte, block)
			for j := range blocks[i] {
				blocks[i][j] = 1
			}
		}
		runtime.KeepAlive(blocks)
	case "syscall":
		socket, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			fail(err.Error())
		}
		for i := 0; i < hoard; i++ {
			socket.WriteTo([]byte{0}, socket.LocalAddr())
		}
		socket.Close()
	default:
		fail("no such attack: " + attack)
	}
}
