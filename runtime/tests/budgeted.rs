//! `#[budgeted]` code is metered exactly.

use mainspring::{Config, Cx, Exhaustion, NurseryOptions, Pool, Profile, TaskError, budgeted};

#[budgeted]
fn spin(cx: &Cx, times: u32) -> u32 {
    let mut sum = 0u32;
    for i in 0..times {
        sum = sum.wrapping_add(i);
    }
    sum
}

#[budgeted]
#[allow(clippy::never_loop)]
fn mixed(cx: &Cx, n: u32) -> Option<u32> {
    let mut found = None;
    let mut i = 0;
    // 10 iterations, and 3 in the inner loop of each: 40 in all.
    while i < n {
        i += 1;
        for j in 0..3 {
            if i == n && j == 2 {
                found = Some(double(j));
            }
        }
    }
    let answer = loop {
        break found?;
    };
    Some(answer)
}

fn double(n: u32) -> u32 {
    n * 2
}

#[budgeted]
fn fib(cx: &Cx, n: u32) -> u32 {
    if n < 2 { n } else { fib(cx, n - 1) + fib(cx, n - 2) }
}

#[budgeted]
fn endless(cx: &Cx) {
    loop {
        std::hint::spin_loop();
    }
}

/// Every way out of a loop, in one function each: what was begun is counted.
#[budgeted]
fn first_even(cx: &Cx, values: &[u32]) -> Option<u32> {
    for &value in values {
        if value % 2 == 0 {
            return Some(value);
        }
    }
    None
}

#[budgeted]
fn sum_until_zero(cx: &Cx, values: &[u32]) -> u32 {
    let mut sum = 0;
    for &value in values {
        if value == 0 {
            break;
        }
        if value == 1 {
            continue;
        }
        sum += value;
    }
    sum
}

#[budgeted]
fn parse_all(cx: &Cx, words: &[&str]) -> Result<Vec<u32>, std::num::ParseIntError> {
    let mut numbers = vec![];
    for word in words {
        numbers.push(word.parse()?);
    }
    Ok(numbers)
}

#[budgeted]
fn nested(cx: &Cx, n: usize) -> usize {
    let mut count = 0;
    'rows: for row in 0..n {
        for column in 0..n {
            if column > row {
                continue 'rows;
            }
            if row + column > 2 * n {
                break 'rows;
            }
            count += 1;
        }
    }
    count
}

#[budgeted]
fn largest<'a>(cx: &Cx, values: &'a mut [u32]) -> Option<&'a mut u32> {
    let mut at = 0;
    for i in 1..values.len() {
        if values[i] > values[at] {
            at = i;
        }
    }
    values.get_mut(at)
}

#[budgeted]
fn all_kinds(cx: &Cx, n: usize) -> usize {
    let values: Vec<usize> = (0..n).collect();
    let mut sum = 0;
    for i in (0..n).rev() {
        sum += i;
    }
    for value in &values {
        sum += value;
    }
    for (i, value) in values.iter().enumerate() {
        sum += i * value;
    }
    for i in 0..=3 {
        for _ in 0..2 {
            sum += i;
        }
    }
    let mut values = values;
    for value in &mut values {
        *value += 1;
    }
    while let Some(value) = values.pop() {
        sum += value;
    }
    sum
}

fn ops_of<T: Send>(f: impl FnOnce(&Cx) -> T + Send) -> (T, u64) {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    runtime
        .run(|cx| {
            let before = cx.ops_used();
            let value = f(cx);
            (value, cx.ops_used() - before)
        })
        .unwrap()
}

//= SCHED:4.1.1b SCHED:4.1.2
#[test]
fn iterations_and_calls_cost_one_op_each() {
    for times in [0, 1, 7, 1023, 1024, 1025, 5000] {
        assert_eq!(ops_of(|cx| spin(cx, times)).1, u64::from(times), "{times} iterations");
    }
    // 40 iterations, 1 of the last loop, 1 call.
    assert_eq!(ops_of(|cx| mixed(cx, 10)), (Some(4), 42));
    // One op per call; the first call is not made by budgeted code.
    let calls = 177 - 1;
    assert_eq!(ops_of(|cx| fib(cx, 10)), (55, calls));
}

//= SCHED:3.3.1
#[test]
fn every_way_out_of_a_loop_is_counted() {
    assert_eq!(ops_of(|cx| first_even(cx, &[1, 3, 4, 5])), (Some(4), 3));
    assert_eq!(ops_of(|cx| first_even(cx, &[1; 3000])), (None, 3000));
    assert_eq!(ops_of(|cx| sum_until_zero(cx, &[1, 2, 1, 3, 0, 5])), (5, 5));
    assert_eq!(ops_of(|cx| parse_all(cx, &["1", "2", "x", "4"]).is_err()), (true, 3));
    assert_eq!(ops_of(|cx| parse_all(cx, &["1", "2"])), (Ok(vec![1, 2]), 2));
    // Rows, and in each its columns up to the one that is too many; the last row has none such.
    let n = 40u64;
    assert_eq!(ops_of(|cx| nested(cx, 40)), (820, n + (2..=n).sum::<u64>() + n));
    assert_eq!(ops_of(|cx| largest(cx, &mut [3, 9, 2]).copied()), (Some(9), 2));
}

//= SCHED:3.3.1
#[test]
fn loops_over_anything_cost_one_op_an_iteration() {
    for n in [0, 1, 511, 512, 513, 1024, 3000] {
        let (sum, ops) = ops_of(|cx| all_kinds(cx, n));
        let n = n as u64;
        let squares: u64 = (0..n).map(|i| i * i).sum();
        let once: u64 = (0..n).sum();
        assert_eq!(sum as u64, once + once + squares + 12 + once + n, "{n} items");
        // Five loops of n, and one of 4 with one of 2 in it.
        assert_eq!(ops, 5 * n + 12, "{n} items");
    }
}

/// Iterators of every sort: those that know their length, and those that do not.
#[budgeted]
fn all_iterators(cx: &Cx, values: &mut [u32]) -> u32 {
    let n = values.len();
    let mut sum = 0u32;
    for (value, i) in values.iter_mut().zip(0..n) {
        *value = i as u32;
    }
    for i in (0..n).step_by(3) {
        sum = sum.wrapping_add(values[i]);
    }
    for chunk in values.chunks(2) {
        sum = sum.wrapping_add(chunk[0]);
    }
    for i in 0..=n {
        sum = sum.wrapping_add(i as u32);
    }
    for value in values.iter().filter(|&&value| value % 2 == 0) {
        sum = sum.wrapping_add(*value);
    }
    sum
}

//= SCHED:3.3.1
#[test]
fn iterators_of_every_sort_cost_one_op_an_item() {
    for n in [0, 1, 2, 511, 512, 513, 1024, 1025, 3000] {
        let (_, ops) = ops_of(|cx| all_iterators(cx, &mut vec![0; n]));
        assert_eq!(ops, (n + n.div_ceil(3) + n.div_ceil(2) + n + 1 + n.div_ceil(2)) as u64, "{n} items");
    }
}

/// What an iteration makes one of may not become two: closures that get out of the loop, and statics.
#[budgeted]
fn makes(cx: &Cx, n: usize) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let mut adders = Vec::new();
    for i in 0..n {
        adders.push(move |x| x + i);
    }
    let mut sum = 0;
    for adder in &adders {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        CALLS.fetch_add(1, Ordering::Relaxed);
        let doubled: [usize; 2] = std::array::from_fn(|_| CALLS.load(Ordering::Relaxed));
        sum = adder(0) + doubled[0];
    }
    sum
}

#[test]
fn what_is_written_once_in_a_loop_is_there_once() {
    // The call of `Vec::new`; an iteration of the first loop; one of the second and the two calls in it.
    assert_eq!(ops_of(|cx| makes(cx, 600)), (599 + 600, 1 + 600 + 3 * 600));
}

#[budgeted]
fn until_even(cx: &Cx, rows: &[[u32; 20]]) -> u32 {
    let mut odd = 0;
    'rows: for row in rows {
        for value in row {
            if value % 2 == 0 {
                continue 'rows;
            }
            odd += 1;
        }
    }
    odd
}

//= SCHED:3.3.1
#[test]
fn a_loop_that_another_one_goes_on_from_is_counted_as_far_as_it_got() {
    let rows = [[1; 20], [2; 20]];
    // Two rows, all values of the first and one of the second.
    assert_eq!(ops_of(|cx| until_even(cx, &rows)), (20, 2 + 20 + 1));
}

/// A `while` loop for every sort of counter, each of which says how often it goes round.
#[budgeted]
fn strides(cx: &Cx, n: u32) -> u64 {
    let (mut rounds, mut i) = (0u64, 0);
    while i < n {
        rounds += 1;
        i += 1;
    }
    let (mut far, step) = (i64::MIN, 3 << 40);
    while far < i64::MAX - step {
        rounds += 1;
        far += step;
    }
    let mut small = 250u8;
    while small < 255 {
        rounds += 1;
        small += 5;
    }
    let mut part = 0.0;
    while part < f64::from(n) {
        rounds += 1;
        part += 0.5;
    }
    let mut values: Vec<u32> = (0..n).collect();
    let mut at = 0;
    // It comes half as far, since the other end comes towards it.
    while at < values.len() {
        rounds += 1;
        values.truncate(values.len() - 1);
        at += 1;
    }
    let mut odd = 1;
    while odd < n {
        if odd % 4 == 1 {
            rounds += 1;
        } else {
            rounds = rounds.wrapping_add(1);
        }
        odd += 2;
    }
    rounds
}

//= SCHED:3.3.1
#[test]
fn loops_that_count_by_themselves_cost_one_op_an_iteration() {
    for n in [0, 1, 2, 511, 512, 513, 1024, 1025, 3000] {
        let (rounds, ops) = ops_of(|cx| strides(cx, n));
        let n = u64::from(n);
        let far = (u128::from(u64::MAX) - (3 << 40)).div_ceil(3 << 40) as u64;
        assert_eq!(rounds, n + far + 1 + 2 * n + n.div_ceil(2) + n / 2, "{n}");
        // `f64::from` is a call, and the last condition has one more.
        assert_eq!(ops, rounds + 2 * n + 1, "{n}");
    }
}

/// The step is none, and the way out is a panic: the loop is counted as it goes.
#[budgeted]
fn stands_still(cx: &Cx, step: u32, times: &std::sync::atomic::AtomicU32) {
    let i = 0;
    let mut i = i;
    while i < 1 {
        assert_ne!(times.fetch_sub(1, std::sync::atomic::Ordering::Relaxed), 0);
        i += step;
    }
}

#[test]
fn a_counter_that_stands_still_is_metered() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let ended = runtime.run(|cx| {
        let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail);
        cx.nursery_with(options, |n| {
            let budget = mainspring::Budget { ops: 1000, ..mainspring::Budget::ZERO };
            n.builder().budget(budget).start(|cx| stands_still(cx, 0, &100_000.into())).unwrap();
        })
    });
    let error = ended.unwrap().unwrap_err().error;
    assert!(matches!(error, TaskError::BudgetExhausted(mainspring::Component::Ops)), "{error}");
}

/// Rounds that a check inside counts, in every place where it is certain to be reached, and rounds that go past it.
#[budgeted]
fn rounds(cx: &Cx, n: u32, values: &[Option<u32>]) -> Option<u32> {
    let mut sum = 0u32;
    for i in 0..n {
        let more = spin(cx, i % 3) + 1;
        sum = sum.wrapping_add(more);
        for _ in 0..values.len() {
            sum = sum.wrapping_add(1);
        }
    }
    for value in values {
        let value = (*value)?;
        for _ in 0..value {
            sum = sum.wrapping_add(1);
        }
    }
    for i in 0..n {
        if i % 2 == 0 {
            spin(cx, 1);
        }
    }
    for i in 0..n {
        if i % 2 == 0 {
            continue;
        }
        spin(cx, 1);
    }
    for i in 0..n {
        if i % 2 == 0 {
            let mut left = i;
            while left > 0 {
                left /= 2;
            }
        }
    }
    Some(sum)
}

//= SCHED:3.3.1
#[test]
fn a_round_is_counted_once_by_whichever_check_it_comes_by() {
    for n in [0, 1, 2, 100, 511, 512, 513, 1025] {
        let values = [Some(3), Some(0), Some(700)];
        let (sum, ops) = ops_of(|cx| rounds(cx, n, &values));
        assert!(sum.is_some());
        let n = u64::from(n);
        let spins: u64 = (0..n).map(|i| i % 3).sum();
        let first = n + n + spins + 3 * n;
        let second = 3 + 703;
        let (third, fourth) = (n + 2 * n.div_ceil(2), n + 2 * (n / 2));
        let halvings: u64 =
            (0..n).step_by(2).map(|i| u64::from((u64::BITS - i.leading_zeros()).min(64))).sum();
        assert_eq!(ops, first + second + third + fourth + n + halvings, "{n}");
    }
    // The second round of the second loop ends before it comes to the loop inside.
    let values = [Some(3), None, Some(700)];
    assert_eq!(ops_of(|cx| rounds(cx, 0, &values)), (None, 2 + 3));
}

/// A range whose length does not fit its type, and one that is empty the wrong way round.
#[budgeted]
fn ranges(cx: &Cx, begin: i16, end: i16) -> i64 {
    let mut sum = 0;
    for i in begin..end {
        sum += i64::from(i);
    }
    sum
}

#[test]
fn ranges_are_cut_without_loss() {
    let all = (i16::MIN..i16::MAX).map(i64::from).sum::<i64>();
    // An iteration and a call each.
    assert_eq!(ops_of(|cx| ranges(cx, i16::MIN, i16::MAX)), (all, 2 * 65_535));
    assert_eq!(ops_of(|cx| ranges(cx, 5, -5)), (0, 0));
}

//= SCHED:3.3.1
#[test]
fn what_a_function_hands_its_context_to_finds_everything_paid() {
    #[budgeted]
    fn looks(cx: &Cx, n: u64) -> (u64, u64) {
        let before = cx.ops_used();
        let mut i = 0;
        while i < n {
            i += 1;
        }
        (before, cx.ops_used())
    }
    for n in [0, 1, 700, 5000] {
        let ((before, after), _) = ops_of(|cx| looks(cx, n));
        assert_eq!(after - before, n);
    }
}

/// A function that gets the context, and is not budgeted, sees what its caller has paid.
fn paid(cx: &Cx) -> u64 {
    cx.ops_used()
}

//= SCHED:4.1.1b
#[test]
fn a_function_that_gets_the_context_finds_less_than_64_unpaid() {
    #[budgeted]
    fn calls(cx: &Cx, n: u64) -> u64 {
        let begin = cx.ops_used();
        let (mut used, mut most) = (0, 0);
        while used < n {
            // The call, the calls of `double` and `max`, and the iteration when it is over.
            used += 3;
            let unpaid = begin + used - paid(cx);
            most = std::cmp::max(most, unpaid + u64::from(double(0)));
            used += 2;
        }
        most
    }
    let (most, _) = ops_of(|cx| calls(cx, 5000));
    assert!(most < 64, "{most} ops are unpaid");
    assert!(most > 1, "a call that pays each time costs too much");
}

/// Calls only: what stops it is the check of a call that hands the context on.
#[budgeted]
fn recursion(cx: &Cx, depth: u32) {
    if depth > 0 {
        recursion(cx, depth - 1);
        recursion(cx, depth - 1);
    }
}

//= SCHED:15.1.1 SCHED:4.1.1b
#[test]
fn recursion_without_a_loop_stops_at_its_budget() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let error = runtime
        .run(|cx| {
            let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail);
            cx.nursery_with(options, |n| drop(n.spawn(|cx| recursion(cx, 40)))).unwrap_err()
        })
        .unwrap();
    assert!(matches!(error.error, TaskError::BudgetExhausted(mainspring::Component::Ops)), "{error}");
}

/// A task that has just enough does not stop, one that has one op less does.
//= SCHED:4.1.2
#[test]
fn the_last_op_is_usable_and_the_one_after_it_is_not() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    for times in [1, 512, 1024, 1025, 4000] {
        for (budget, enough) in [(times, true), (times - 1, false)] {
            let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail);
            let ended = runtime
                .run(|cx| {
                    cx.nursery_with(options, |n| {
                        let budget = mainspring::Budget { ops: budget, ..mainspring::Budget::ZERO };
                        // One more check, for what the function could not pay at its end.
                        let body = move |cx: &Cx| {
                            spin(cx, times);
                            if !enough {
                                cx.check();
                            }
                        };
                        drop(n.builder().budget(budget).spawn(body));
                    })
                })
                .unwrap();
            assert_eq!(ended.is_ok(), enough, "{times} iterations with {budget} ops: {ended:?}");
        }
    }
}

//= SCHED:15.1.1
#[test]
fn an_endless_loop_stops_at_its_budget() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let error = runtime
        .run(|cx| {
            let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail);
            cx.nursery_with(options, |n| drop(n.spawn(endless))).unwrap_err()
        })
        .unwrap();
    assert!(matches!(error.error, TaskError::BudgetExhausted(mainspring::Component::Ops)), "{error}");
}

/// A step that is a method, and so costs nothing.
trait Step {
    fn take(&self);
}

impl Step for &dyn Fn() {
    fn take(&self) {
        self();
    }
}

/// How far a loop, or many short functions, get with a budget.
fn steps_within(budget: u32, run: impl Fn(&Cx, &dyn Fn()) + Send + Sync) -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    let steps = AtomicU32::new(0);
    let step = || {
        steps.fetch_add(1, Ordering::Relaxed);
    };
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let ended = runtime.run(|cx| {
        let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail);
        cx.nursery_with(options, |n| {
            let budget = mainspring::Budget { ops: budget, ..mainspring::Budget::ZERO };
            n.builder().budget(budget).start(|cx| run(cx, &step)).unwrap();
        })
    });
    let error = ended.unwrap().unwrap_err().error;
    assert!(matches!(error, TaskError::BudgetExhausted(mainspring::Component::Ops)), "{error}");
    steps.into_inner()
}

//= SCHED:4.1.2 SCHED:15.1.1
#[test]
fn a_function_goes_512_ops_and_an_iteration_beyond_its_budget_at_most() {
    #[budgeted]
    fn goes(cx: &Cx, step: &dyn Fn()) {
        loop {
            step();
        }
    }
    #[budgeted]
    fn goes_a_little(cx: &Cx, step: &dyn Fn()) {
        let mut i = 0;
        while i < 10 {
            step();
            i += 1;
        }
    }
    #[budgeted]
    fn counts(cx: &Cx, step: &dyn Step) {
        let mut i = 0;
        while i < u64::MAX {
            step.take();
            i += 1;
        }
    }
    #[budgeted]
    fn takes(cx: &Cx, step: &dyn Step) {
        let mut i = 0;
        while i < 100 {
            i += 1;
        }
        for _ in std::iter::repeat_with(|| ()) {
            step.take();
        }
    }
    for budget in [1, 100, 511, 512, 513, 5000, 20_000] {
        // An iteration and a call each.
        let steps = 2 * steps_within(budget, |cx, step| goes(cx, step));
        assert!((budget..=budget + 512 + 2).contains(&steps), "{steps} ops with a budget of {budget}");
        let steps = steps_within(budget, |cx, step| counts(cx, &step));
        assert!((budget..=budget + 512 + 1).contains(&steps), "{steps} ops with a budget of {budget}");
        // The rounds of its first loop, and a call.
        let steps = 101 + steps_within(budget, |cx, step| takes(cx, &step));
        assert!((budget..=budget + 512 + 1).contains(&steps), "{steps} ops with a budget of {budget}");
        // What calls it is not budgeted: the check is where the function ends.
        let steps = 2 * steps_within(budget, |cx, step| {
            loop {
                goes_a_little(cx, step);
            }
        });
        assert!((budget..=budget + 2 * 10).contains(&steps), "{steps} ops with a budget of {budget}");
    }
}

#[test]
fn a_function_that_is_stopped_at_its_end_drops_its_result() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Made;
    impl Drop for Made {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    #[budgeted]
    fn makes(cx: &Cx, step: &dyn Fn()) -> Made {
        let made = Made;
        step();
        made
    }
    let made = steps_within(50, |cx, step| {
        loop {
            drop(makes(cx, step));
        }
    });
    assert_eq!(DROPPED.load(Ordering::Relaxed), made);
}

//= SCHED:4.3.1
#[test]
fn the_interval_is_configurable() {
    let runtime =
        Config::new(Profile::Sovereign).yield_interval(10).workers(1).root_pool(Pool::AMPLE).build().unwrap();
    let used = runtime.run(|cx| (cx.yield_interval(), spin(cx, 25), cx.ops_used())).unwrap();
    assert_eq!((used.0, used.2), (10, 25));
}

/// Keeps many values in registers, floating-point ones among them, across checks that switch to the other task.
#[budgeted]
fn churn(cx: &Cx, seed: u32, rounds: u32) -> (u64, f64) {
    let (mut a, mut b, mut c) = (u64::from(seed), 1u64, 2u64);
    let (mut x, mut y, mut z) = (f64::from(seed), 0.5, 0.25);
    let mut round = 0;
    while round < rounds {
        a = a.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(b ^ c);
        b = b.rotate_left(7) ^ a;
        c = c.wrapping_add(a >> 3);
        x = x * 0.75 + y;
        y = y * 0.5 + z;
        z = z * 0.125 + 1.0;
        round += 1;
    }
    (a ^ b ^ c, x + y + z)
}

#[test]
fn a_check_that_switches_leaves_all_values_as_they_were() {
    let alone = |seed| ops_of(|cx| churn(cx, seed, 3000)).0;
    let rounds = 60_000;
    let runtime = Config::new(Profile::Service).workers(1).quantum_ops(1024).build().unwrap();
    let expected: Vec<_> = (0..3).map(|seed| runtime.run(|cx| churn(cx, seed, rounds)).unwrap()).collect();
    let found = runtime
        .run(|cx| {
            cx.nursery(|n| {
                let handles: Vec<_> =
                    (0..3).map(|seed| n.spawn(move |cx| churn(cx, seed, rounds)).unwrap()).collect();
                handles.into_iter().map(|handle| handle.join(cx).unwrap()).collect::<Vec<_>>()
            })
        })
        .unwrap()
        .unwrap();
    assert_eq!(found, expected);
    assert_ne!(alone(1), alone(2));
}

#[test]
fn a_cancelled_loop_unwinds_and_drops_what_it_holds() {
    use std::sync::atomic::{AtomicBool, Ordering};
    struct Flag<'a>(&'a AtomicBool);
    impl Drop for Flag<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    #[budgeted]
    fn holds(cx: &Cx, dropped: &AtomicBool) {
        let _flag = Flag(dropped);
        loop {
            std::hint::spin_loop();
        }
    }
    let dropped = AtomicBool::new(false);
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let ended = runtime.run(|cx| {
        cx.nursery(|n| {
            n.start(|cx| holds(cx, &dropped)).unwrap();
            cx.yield_now();
            n.cancel();
        })
    });
    assert!(matches!(ended.unwrap().unwrap_err().error, TaskError::Cancelled));
    assert!(dropped.load(Ordering::Relaxed));
}
