use super::{
    finding::{CheckFinding, exit},
    report,
};
use crate::cli::exit::CommandExit;
use mcm_insight::terminal::TerminalLook;

fn findings() -> Vec<CheckFinding> {
    vec![
        CheckFinding::good("clusters", "control cluster v1.36.3 and target cluster v1.35.1 answer"),
        CheckFinding::good("kinds", "4 of 4 served, with all fields of this version"),
        CheckFinding::problem(
            "drivers",
            "class \"large\" names provider \"AWS\", which this controller does not serve: this build has no driver for AWS: \
             build it with --features aws, or pass a remote driver with --driver AWS=ADDRESS",
        ),
        CheckFinding::unknown("secrets", "not read: it responded 403 Forbidden: secrets is forbidden")
            .then("ask an administrator"),
        CheckFinding::note("waits", "1 object waits for a user: MachineDeployment pool").then("mcm why -n demo"),
    ]
}

#[test]
fn eighty_columns() {
    let text = report::text(TerminalLook::PLAIN, &findings());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_wide_terminal_with_colours() {
    let look = TerminalLook { width: 200, colours: true, is_terminal: true, ..TerminalLook::PLAIN };
    insta::assert_snapshot!(report::text(look, &findings()));
}

#[test]
fn plain_ascii() {
    let text = report::text(TerminalLook { unicode: false, ..TerminalLook::PLAIN }, &findings());
    assert!(text.is_ascii(), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn json_is_for_programs() {
    let text = report::json("Check", "demo", jiff::Timestamp::UNIX_EPOCH, &findings()[3..]).unwrap();
    report::published(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_problem_and_a_stored_object_that_could_not_be_read_make_the_answer_no() {
    assert_eq!(exit(&findings()), CommandExit::No);
    assert_eq!(exit(&findings()[..2]), CommandExit::Good);
    let open = |check| [CheckFinding::unknown(check, "not read")];
    assert_eq!(exit(&open("permissions")), CommandExit::Good, "of another cluster, which need not be asked");
    let text = report::text(TerminalLook::PLAIN, &open("objects"));
    assert!(text.ends_with("Not known to be ready: 1 open question. Nothing was written.\n"), "{text}");
    let text = report::text(TerminalLook::PLAIN, &findings()[..2]);
    assert!(text.ends_with("Ready. Nothing was written.\n"), "{text}");
}
