//! What is allowed and hardly meant.

use mainspring_workload::parse;

fn warnings(text: &str) -> Vec<String> {
    let workload = parse("w.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    workload.warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn waits_that_nobody_ends_are_named_with_their_line() {
    let parked = "[[thread]]\nname = \"a\"\nprogram = [\n\"run 1ms\",\n\"park\",\n]\n";
    assert_eq!(warnings(parked), ["line 5: nobody unparks a: its park never ends"]);
    let by_thread = "[[thread]]\nname = \"b\"\nprogram = [\"unpark a\", \"run 1ms\"]\n";
    let by_device = "[[interrupt]]\nname = \"i\"\nevery = \"1ms\"\nwakes = \"a\"\n";
    let by_fault = "[faults]\nburst_every = \"1ms\"\n";
    for ended in [by_thread, by_device, by_fault] {
        assert_eq!(warnings(&format!("{parked}{ended}")), [""; 0]);
    }
    assert_eq!(warnings(&parked.replace("\"park\"", "\"park 5ms\"")), [""; 0]);
}

#[test]
fn what_comes_after_the_end_is_named() {
    let text = "[machine]\nduration = \"10ms\"\n[[thread]]\nname = \"a\"\nstart = \"20ms\"\nprogram = [\"run 1ms\"]\n\
                [[thread]]\nname = \"b\"\nstart = \"5ms..20ms\"\nprogram = [\"run 1ms\"]\n\
                [[at]]\ntime = \"1s\"\ndo = \"exit b\"\n";
    assert_eq!(
        warnings(text),
        [
            "line 3: a starts at 20ms, and the run ends at 10ms",
            "line 11: `exit b` comes at 1s, and the run ends at 10ms"
        ]
    );
}

#[test]
fn contexts_that_nobody_uses_are_named() {
    let text = "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n";
    assert_eq!(warnings(text), ["line 1: nobody uses context c: its time is set aside for nothing"]);
    assert_eq!(warnings(&format!("{text}context = \"c\"\n")), [""; 0]);
    assert_eq!(warnings(&text.replace("[\"run 1ms\"]", "[\"bind c\", \"run 1ms\"]")), [""; 0]);
}

#[test]
fn what_nobody_opens_is_named() {
    let text = "[[semaphore]]\nname = \"s\"\n[[condition]]\nname = \"c\"\n[[mutex]]\nname = \"m\"\n[[barrier]]\nname = \"b\"\nparties = 3\n\
                [[thread]]\nname = \"a\"\ncount = 2\nprogram = [\n\"run 1ms\",\n\"down s\",\n\"lock m\",\n\"wait c m\",\n\"unlock m\",\n\"barrier b\",\n]\n";
    assert_eq!(
        warnings(text),
        [
            "line 15: nobody raises semaphore s: waits there never end",
            "line 19: 2 of 3 threads come to barrier b: waits there never end",
            "line 17: nobody raises condition c: waits there never end",
        ]
    );
    let raised = "[[thread]]\nname = \"d\"\nprogram = [\"up s\", \"signal c\", \"barrier b\", \"run 1ms\"]\n";
    assert_eq!(warnings(&format!("{text}{raised}")), [""; 0]);
}

#[test]
fn phases_that_change_nothing_are_named() {
    let found = warnings(
        "[machine]\nduration = \"10ms\"\nsmt = \"50%\"\n[[thread]]\nname = \"a\"\nprogram = [\n\"for 20ms\",\n\"run 1ms\",\n\"end\",\n\
         \"either 0%\",\n\"yield\",\n\"or 50%\",\n\"yield\",\n\"or 0%\",\n\"yield\",\n\"end\"]\n",
    );
    assert_eq!(
        found,
        [
            "line 7: a is in this phase for 20ms, and the run ends at 10ms",
            "line 10: a never goes this way: its chance is 0%",
            "line 14: a never goes this way: its chance is 0%",
            "line 1: smt changes nothing: a CPU that is alone shares its core with none",
        ]
    );
}
