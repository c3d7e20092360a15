//! The same loops in Rust, on the same types: words of 64 bits, slices with bounds, on the heap as a compiled program has them.
#![allow(clippy::useless_vec)]

/// The product of two matrices.
pub fn matrix(times: i64) -> i64 {
    let n = 96usize;
    let a: Vec<f64> = (0..n * n).map(|i| i as f64 * 0.5).collect();
    let b: Vec<f64> = (0..n * n).map(|i| i as f64 * 0.25).collect();
    let mut product = vec![0.0; n * n];
    for _ in 0..times {
        for i in 0..n {
            for j in 0..n {
                product[i * n + j] = 0.0;
            }
            for k in 0..n {
                let factor = a[i * n + k];
                for j in 0..n {
                    product[i * n + j] += factor * b[k * n + j];
                }
            }
        }
    }
    product[n * n - 1] as i64
}

/// FNV-1a.
pub fn hash(times: i64) -> i64 {
    let bytes: Vec<i64> = (0..300_000).map(|i| i & 255).collect();
    let mut hash = 0xcbf2_9ce4_8422_2325u64 as i64;
    for _ in 0..times {
        for byte in &bytes {
            hash = (hash ^ byte).wrapping_mul(0x100_0000_01b3);
        }
    }
    hash
}

fn sift(heap: &mut [i64], mut root: usize) {
    loop {
        let mut child = 2 * root + 1;
        if child >= heap.len() {
            return;
        }
        if child + 1 < heap.len() && heap[child] < heap[child + 1] {
            child += 1;
        }
        if heap[root] >= heap[child] {
            return;
        }
        heap.swap(root, child);
        root = child;
    }
}

/// Heapsort.
pub fn sort(times: i64) -> i64 {
    let mut values = vec![0i64; 10_000];
    for _ in 0..times {
        let mut x = 1i64;
        for value in &mut values {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *value = x >> 33 & 0x7fff_ffff;
        }
        for root in (0..values.len() / 2).rev() {
            sift(&mut values, root);
        }
        for end in (1..values.len()).rev() {
            values.swap(0, end);
            sift(&mut values[..end], 0);
        }
    }
    values[5000]
}

fn text(bytes: &[i64], at: &mut usize) -> i64 {
    let begin = *at;
    *at += 1;
    while bytes[*at] != 34 {
        *at += if bytes[*at] == 92 { 2 } else { 1 };
    }
    *at += 1;
    (*at - begin) as i64
}

fn number(bytes: &[i64], at: &mut usize) -> i64 {
    let mut value = 0i64;
    while (bytes[*at] ^ 48) < 10 {
        value = value.wrapping_mul(10).wrapping_add(bytes[*at] - 48);
        *at += 1;
    }
    value
}

fn value(bytes: &[i64], at: &mut usize) -> i64 {
    match bytes[*at] {
        34 => text(bytes, at),
        91 => {
            let mut sum = 0i64;
            *at += 1;
            while bytes[*at] != 93 {
                sum = sum.wrapping_add(value(bytes, at));
                if bytes[*at] == 44 {
                    *at += 1;
                }
            }
            *at += 1;
            sum
        }
        _ => number(bytes, at),
    }
}

/// A document by recursive descent.
pub fn json(times: i64) -> i64 {
    let item = [91, 49, 50, 44, 34, 97, 98, 92, 34, 99, 34, 44, 51, 52, 53, 93, 44];
    let mut bytes = vec![91];
    (0..4000).for_each(|_| bytes.extend(item));
    bytes.push(93);
    let mut sum = 0i64;
    for _ in 0..times {
        sum = sum.wrapping_add(value(&bytes, &mut 0));
    }
    sum
}

/// Primes.
pub fn sieve(times: i64) -> i64 {
    let mut composite = vec![0i64; 200_000];
    let mut primes = 0;
    for _ in 0..times {
        primes = 0;
        composite.fill(0);
        for i in 2..composite.len() {
            if composite[i] == 0 {
                primes += 1;
                let mut multiple = i * i;
                while multiple < composite.len() {
                    composite[multiple] = 1;
                    multiple += i;
                }
            }
        }
    }
    primes
}

/// Five bodies.
pub fn nbody(times: i64) -> i64 {
    let mut place: Vec<f64> = (0..5).flat_map(|i| [f64::from(i), f64::from(i * i) * 0.5, 1.0]).collect();
    let mut speed = vec![0.0; 15];
    let mass = vec![1.0, 0.1, 0.2, 0.3, 0.4];
    for _ in 0..times * 1000 {
        for i in 0..5 {
            for j in i + 1..5 {
                let x = place[i * 3] - place[j * 3];
                let y = place[i * 3 + 1] - place[j * 3 + 1];
                let z = place[i * 3 + 2] - place[j * 3 + 2];
                let square = x * x + y * y + z * z + 0.01;
                let pull = 0.0001 / (square * square);
                for (axis, apart) in [x, y, z].into_iter().enumerate() {
                    speed[i * 3 + axis] -= apart * mass[j] * pull;
                    speed[j * 3 + axis] += apart * mass[i] * pull;
                }
            }
        }
        for i in 0..15 {
            place[i] += 0.001 * speed[i];
        }
    }
    (place[0] * 1_000_000.0) as i64
}
