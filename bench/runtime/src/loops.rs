//! Loops of real programs, three times the same: as they are, metered by `#[budgeted]`, and gauged, which tells how far
//! apart the checks are.

/// The same functions in three modules.
macro_rules! three_times {
    ($($(#[$attribute:meta])* fn $name:ident ($($parameters:tt)*) $(-> $output:ty)? { $($body:tt)* })*) => {
        /// As they are.
        #[allow(unused_variables)]
        pub mod plain {
            use mainspring::Cx;
            $(
                #[allow(missing_docs)]
                $(#[$attribute])*
                pub fn $name($($parameters)*) $(-> $output)? { $($body)* }
            )*
        }
        /// Metered.
        pub mod metered {
            use mainspring::{Cx, budgeted};
            $(
                #[allow(missing_docs)]
                $(#[$attribute])*
                #[budgeted]
                pub fn $name($($parameters)*) $(-> $output)? { $($body)* }
            )*
        }
        /// Gauged.
        pub mod gauged {
            use crate::gauge::Cx;
            use mainspring::budgeted;
            $(
                #[allow(missing_docs)]
                $(#[$attribute])*
                #[budgeted]
                pub fn $name($($parameters)*) $(-> $output)? { $($body)* }
            )*
        }
    };
}

three_times! {
    #[inline(never)]
    fn matrix(cx: &Cx, a: &[f64], b: &[f64], product: &mut [f64], n: usize) {
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

    #[inline(never)]
    fn hash(cx: &Cx, bytes: &[u8]) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash
    }

    #[inline(never)]
    fn sort(cx: &Cx, values: &mut [u32]) {
        let n = values.len();
        for root in (0..n / 2).rev() {
            sift(cx, values, root);
        }
        for end in (1..n).rev() {
            values.swap(0, end);
            sift(cx, &mut values[..end], 0);
        }
    }

    #[inline(always)]
    fn sift(cx: &Cx, heap: &mut [u32], mut root: usize) {
        loop {
            let mut child = 2 * root + 1;
            if child >= heap.len() {
                return;
            }
            if child + 1 < heap.len() {
                child += (heap[child] < heap[child + 1]) as usize;
            }
            if heap[root] >= heap[child] {
                return;
            }
            heap.swap(root, child);
            root = child;
        }
    }

    #[inline(never)]
    fn json(cx: &Cx, text: &[u8], at: &mut usize) -> u64 {
        while text[*at].is_ascii_whitespace() {
            *at += 1;
        }
        match text[*at] {
            open @ (b'[' | b'{') => {
                let close = if open == b'[' { b']' } else { b'}' };
                let mut values = 0;
                *at += 1;
                while text[*at] != close {
                    if open == b'{' {
                        string(cx, text, at);
                        *at += 1;
                    }
                    values += json(cx, text, at);
                    if text[*at] == b',' {
                        *at += 1;
                    }
                }
                *at += 1;
                values
            }
            b'"' => string(cx, text, at),
            _ => number(cx, text, at),
        }
    }

    #[inline(always)]
    fn string(cx: &Cx, text: &[u8], at: &mut usize) -> u64 {
        let begin = *at;
        *at += 1;
        while text[*at] != b'"' {
            *at += if text[*at] == b'\\' { 2 } else { 1 };
        }
        *at += 1;
        (*at - begin) as u64
    }

    #[inline(always)]
    fn number(cx: &Cx, text: &[u8], at: &mut usize) -> u64 {
        let mut value = 0u64;
        while text[*at].is_ascii_digit() {
            value = value.wrapping_mul(10).wrapping_add(u64::from(text[*at] - b'0'));
            *at += 1;
        }
        value
    }

    #[inline(never)]
    fn sieve(cx: &Cx, composite: &mut [bool]) -> usize {
        composite.fill(false);
        let mut primes = 0;
        for n in 2..composite.len() {
            if !composite[n] {
                primes += 1;
                let mut multiple = n * n;
                while multiple < composite.len() {
                    composite[multiple] = true;
                    multiple += n;
                }
            }
        }
        primes
    }

    #[inline(never)]
    fn bodies(cx: &Cx, place: &mut [[f64; 3]], speed: &mut [[f64; 3]], mass: &[f64], steps: u32) {
        for _ in 0..steps {
            for i in 0..place.len() {
                for j in i + 1..place.len() {
                    let apart: [f64; 3] = std::array::from_fn(|axis| place[i][axis] - place[j][axis]);
                    let square = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2];
                    let pull = 0.001 / (square * square.sqrt());
                    for axis in 0..3 {
                        speed[i][axis] -= apart[axis] * mass[j] * pull;
                        speed[j][axis] += apart[axis] * mass[i] * pull;
                    }
                }
            }
            for (place, speed) in place.iter_mut().zip(speed.iter()) {
                for axis in 0..3 {
                    place[axis] += 0.001 * speed[axis];
                }
            }
        }
    }
}
