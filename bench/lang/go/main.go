// The same loops in Go, on the same types. `go-loops LOOP TIMES ROUNDS` prints the result, and the least seconds of a round.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func matrix(times int) int64 {
	const n = 96
	a, b, product := make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)
	for i := range a {
		a[i], b[i] = float64(i)*0.5, float64(i)*0.25
	}
	for t := 0; t < times; t++ {
		for i := 0; i < n; i++ {
			for j := 0; j < n; j++ {
				product[i*n+j] = 0
			}
			for k := 0; k < n; k++ {
				factor := a[i*n+k]
				for j := 0; j < n; j++ {
					product[i*n+j] += factor * b[k*n+j]
				}
			}
		}
	}
	return int64(product[n*n-1])
}

func hash(times int) int64 {
	bytes := make([]int64, 300000)
	for i := range bytes {
		bytes[i] = int64(i & 255)
	}
	hash := int64(-3750763034362895579)
	for t := 0; t < times; t++ {
		for _, b := range bytes {
			hash = (hash ^ b) * 0x100000001b3
		}
	}
	return hash
}

func sift(heap []int64, root int) {
	for {
		child := 2*root + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && heap[child] < heap[child+1] {
			child++
		}
		if heap[root] >= heap[child] {
			return
		}
		heap[root], heap[child] = heap[child], heap[root]
		root = child
	}
}

func sort(times int) int64 {
	values := make([]int64, 10000)
	for t := 0; t < times; t++ {
		x := int64(1)
		for i := range values {
			x = x*6364136223846793005 + 1442695040888963407
			values[i] = x >> 33 & 0x7fffffff
		}
		for root := len(values)/2 - 1; root >= 0; root-- {
			sift(values, root)
		}
		for end := len(values) - 1; end > 0; end-- {
			values[0], values[end] = values[end], values[0]
			sift(values[:end], 0)
		}
	}
	return values[5000]
}

func text(bytes []int64, at *int) int64 {
	begin := *at
	*at++
	for bytes[*at] != 34 {
		if bytes[*at] == 92 {
			*at += 2
		} else {
			*at++
		}
	}
	*at++
	return int64(*at - begin)
}

func number(bytes []int64, at *int) int64 {
	value := int64(0)
	for bytes[*at]^48 < 10 {
		value = value*10 + bytes[*at] - 48
		*at++
	}
	return value
}

func value(bytes []int64, at *int) int64 {
	switch bytes[*at] {
	case 34:
		return text(bytes, at)
	case 91:
		sum := int64(0)
		*at++
		for bytes[*at] != 93 {
			sum += value(bytes, at)
			if bytes[*at] == 44 {
				*at++
			}
		}
		*at++
		return sum
	}
	return number(bytes, at)
}

func json(times int) int64 {
	item := []int64{91, 49, 50, 44, 34, 97, 98, 92, 34, 99, 34, 44, 51, 52, 53, 93, 44}
	bytes := []int64{91}
	for i := 0; i < 4000; i++ {
		bytes = append(bytes, item...)
	}
	bytes = append(bytes, 93)
	sum := int64(0)
	for t := 0; t < times; t++ {
		at := 0
		sum += value(bytes, &at)
	}
	return sum
}

func sieve(times int) int64 {
	composite := make([]int64, 200000)
	primes := int64(0)
	for t := 0; t < times; t++ {
		primes = 0
		for i := range composite {
			composite[i] = 0
		}
		for i := 2; i < len(composite); i++ {
			if composite[i] == 0 {
				primes++
				for multiple := i * i; multiple < len(composite); multiple += i {
					composite[multiple] = 1
				}
			}
		}
	}
	return primes
}

func nbody(times int) int64 {
	place, speed := make([]float64, 15), make([]float64, 15)
	mass := []float64{1, 0.1, 0.2, 0.3, 0.4}
	for i := 0; i < 5; i++ {
		place[i*3], place[i*3+1], place[i*3+2] = float64(i), float64(i*i)*0.5, 1
	}
	for t := 0; t < times*1000; t++ {
		for i := 0; i < 5; i++ {
			for j := i + 1; j < 5; j++ {
				x, y, z := place[i*3]-place[j*3], place[i*3+1]-place[j*3+1], place[i*3+2]-place[j*3+2]
				square := float64(x*x) + float64(y*y) + float64(z*z) + 0.01
				pull := 0.0001 / float64(square*square)
				for axis, apart := range [3]float64{x, y, z} {
					speed[i*3+axis] -= float64(float64(apart*mass[j]) * pull)
					speed[j*3+axis] += float64(float64(apart*mass[i]) * pull)
				}
			}
		}
		for i := 0; i < 15; i++ {
			place[i] += float64(0.001 * speed[i])
		}
	}
	return int64(place[0] * 1000000)
}

func main() {
	loops := map[string]func(int) int64{"matrix": matrix, "hash": hash, "sort": sort, "json": json, "sieve": sieve, "nbody": nbody}
	times, _ := strconv.Atoi(os.Args[2])
	rounds, _ := strconv.Atoi(os.Args[3])
	least, result := time.Hour, int64(0)
	for round := 0; round < rounds; round++ {
		began := time.Now()
		result = loops[os.Args[1]](times)
		if took := time.Since(began); took < least {
			least = took
		}
	}
	fmt.Println("go", result, least.Seconds())
}
