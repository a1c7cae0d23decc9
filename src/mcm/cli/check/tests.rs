use super::{
    finding::{Finding, exit},
    report,
};
use crate::cli::{exit::Exit, terminal::Look};

fn findings() -> Vec<Finding> {
    vec![
        Finding::good("clusters", "control cluster v1.36.3 and target cluster v1.35.1 answer"),
        Finding::good("kinds", "4 of 4 served, with all fields of this version"),
        Finding::problem(
            "drivers",
            "class \"large\" names provider \"AWS\", which this controller does not serve: this build has no driver for AWS: \
             build it with --features aws, or pass a remote driver with --driver AWS=ADDRESS",
        ),
        Finding::unknown("secrets", "not read: it responded 403 Forbidden: secrets is forbidden")
            .then("ask an administrator"),
        Finding::note("waits", "1 object waits for a user: MachineDeployment pool").then("mcm why -n demo"),
    ]
}

#[test]
fn eighty_columns() {
    let text = report::text(Look::PLAIN, &findings());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_wide_terminal_with_colours() {
    let look = Look { width: 200, colours: true, is_terminal: true, ..Look::PLAIN };
    insta::assert_snapshot!(report::text(look, &findings()));
}

#[test]
fn plain_ascii() {
    let text = report::text(Look { unicode: false, ..Look::PLAIN }, &findings());
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
fn only_a_problem_makes_the_answer_no() {
    assert_eq!(exit(&findings()), Exit::No);
    assert_eq!(exit(&findings()[3..]), Exit::Good);
    let text = report::text(Look::PLAIN, &findings()[..2]);
    assert!(text.ends_with("Ready. Nothing was written.\n"), "{text}");
}
