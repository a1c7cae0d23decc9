//! Each rule finds the faults that it is for, in small trees.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use rstest::rstest;

use super::{circles_of, imports_of_crates, imports_of_shells, impurities, misplaced_tests, upward_imports};
use crate::tree::{Tree, circles, code_of, expand, words_of};

/// A kind without faults: mod, plan, observe, apply and register.
const KIND: [(&str, &str); 5] = [
    (
        "controllers/kind/mod.rs",
        "mod apply;\nmod plan;\npub use plan::plan;\npub struct Snapshot;\npub struct Action;\n",
    ),
    ("controllers/kind/plan.rs", "use super::{Action, Snapshot};\nuse mcm_rules::Plan;\nfn plan() {}\n"),
    ("controllers/kind/observe.rs", "use super::{Snapshot, apply::Kinds};\nfn observe() {}\n"),
    ("controllers/kind/apply.rs", "use super::Action;\nuse mcm_runtime::Client;\npub struct Kinds;\n"),
    ("controllers/kind/register.rs", "use super::{apply::Kinds, plan};\nfn register() {}\n"),
];
const PLAN: (&str, &str) = ("rules/lib.rs", "pub struct Plan;\n");
const RUNTIME: (&str, &str) = ("runtime/lib.rs", "pub struct Client;\n");

/// The kind with some files replaced or added.
fn with(changed: &[(&str, &str)]) -> Tree {
    let mut files: BTreeMap<&str, &str> = KIND.into_iter().chain([PLAN, RUNTIME]).collect();
    files.extend(changed.iter().copied());
    Tree::of(&files.into_iter().collect::<Vec<_>>())
}

#[test]
fn a_kind_without_faults_passes_every_rule() {
    let tree = with(&[]);
    let all = [circles_of(&tree), imports_of_shells(&tree), upward_imports(&tree), impurities(&tree)];
    assert_eq!(all.concat(), [""; 0]);
}

#[rstest]
#[case::a_use_of_a_child(&[
    ("mcm/a/mod.rs", "mod child;\nuse child::X;\npub struct Y;\n"),
    ("mcm/a/child.rs", "use super::Y;\npub struct X;\n"),
], "mcm/a/child.rs -> mcm/a/mod.rs")]
#[case::a_use_of_a_child_with_braces(&[
    ("mcm/a/mod.rs", "mod child;\nuse child::{X as Z, other};\npub struct Y;\n"),
    ("mcm/a/child.rs", "use super::{self, Y};\npub struct X;\n"),
], "mcm/a/child.rs -> mcm/a/mod.rs")]
#[case::a_path_of_the_crate(&[
    ("mcm/a.rs", "use crate::b::B;\npub struct A;\n"),
    ("mcm/b.rs", "fn b() { crate::a::A.f() }\npub struct B;\n"),
], "mcm/a.rs -> mcm/b.rs")]
#[case::a_path_of_a_child_in_code(&[
    ("mcm/a/mod.rs", "mod child;\nfn f() { child::g(Y) }\npub struct Y;\n"),
    ("mcm/a/child.rs", "use super::Y;\npub fn g(_: Y) {}\n"),
], "mcm/a/child.rs -> mcm/a/mod.rs")]
#[case::a_name_that_is_passed_on_and_used(&[
    ("mcm/a/mod.rs", "mod child;\npub use child::X;\npub struct Y(X);\n"),
    ("mcm/a/child.rs", "use super::Y;\npub struct X;\n"),
], "mcm/a/child.rs -> mcm/a/mod.rs")]
#[case::by_way_of_a_folder_that_passes_a_name_on(&[
    ("mcm/a/mod.rs", "mod child;\npub(crate) use child::X;\n"),
    ("mcm/a/child.rs", "use crate::b::B;\npub struct X;\n"),
    ("mcm/b.rs", "use crate::a::X;\npub struct B;\n"),
], "mcm/a/child.rs -> mcm/b.rs")]
#[case::three_files(&[
    ("mcm/a.rs", "use super::b::B;\npub struct A;\n"),
    ("mcm/b.rs", "use crate::{c::C, d::D};\npub struct B;\n"),
    ("mcm/c.rs", "use crate::a::A;\npub struct C;\n"),
    ("mcm/d.rs", "pub struct D;\n"),
], "mcm/a.rs -> mcm/b.rs -> mcm/c.rs")]
#[case::inside_the_crate_of_a_driver(&[
    ("drivers/one-two/lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
    ("drivers/one-two/a.rs", "use crate::b::B;\npub struct A;\n"),
    ("drivers/one-two/b.rs", "use super::a::A;\npub struct B;\n"),
], "drivers/one-two/a.rs -> drivers/one-two/b.rs")]
#[case::with_the_root_of_the_crate_of_a_driver(&[
    ("drivers/one/lib.rs", "mod a;\nuse a::A;\npub struct Login;\n"),
    ("drivers/one/a.rs", "use crate::Login;\npub struct A;\n"),
], "drivers/one/a.rs -> drivers/one/lib.rs")]
#[case::inside_the_interface(&[
    ("driver/lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;\n"),
    ("driver/a.rs", "use crate::B;\npub struct A;\n"),
    ("driver/b.rs", "fn b() { crate::A::new() }\npub struct B;\n"),
], "driver/a.rs -> driver/b.rs")]
#[case::by_way_of_a_folder_that_passes_all_on(&[
    ("mcm/a/mod.rs", "mod child;\npub use child::*;\n"),
    ("mcm/a/child.rs", "use crate::b::B;\npub struct X;\n"),
    ("mcm/b.rs", "use crate::a::X;\npub struct B;\n"),
], "mcm/a/child.rs -> mcm/b.rs")]
#[case::by_another_name(&[
    ("mcm/a/mod.rs", "mod child;\npub use child::X as Y;\n"),
    ("mcm/a/child.rs", "use crate::b::B;\npub struct X;\n"),
    ("mcm/b.rs", "use crate::a::Y;\npub struct B;\n"),
], "mcm/a/child.rs -> mcm/b.rs")]
fn a_circle_is_found(#[case] files: &[(&str, &str)], #[case] expected: &str) {
    assert_eq!(circles_of(&Tree::of(files)), [expected]);
}

#[rstest]
#[case::a_name_that_is_only_passed_on(
    "mod child;\npub use child::X;\npub struct Y;\n",
    "use super::Y;\npub struct X;\n"
)]
#[case::a_visibility("mod child;\nuse child::X;\n", "pub(in crate::a) struct X;\n")]
#[case::a_crate_of_the_name_of_no_child("use serde::X;\npub struct Y;\n", "use super::Y;\npub struct X;\n")]
#[case::a_comment("mod child;\nuse child::X;\npub struct Y;\n", "// use super::Y;\npub struct X;\n")]
#[case::a_test(
    "mod child;\nuse child::X;\npub struct Y;\n",
    "pub struct X;\n\n#[cfg(test)]\nmod tests {\n    use super::super::Y;\n}\n"
)]
fn no_circle_is_found_where_there_is_none(#[case] parent: &str, #[case] child: &str) {
    assert_eq!(circles_of(&Tree::of(&[("mcm/a/mod.rs", parent), ("mcm/a/child.rs", child)])), [""; 0]);
}

#[rstest]
#[case::by_its_path("use crate::cli::Code;\n")]
#[case::in_code("fn f() { crate::cli::Code::new() }\n")]
#[case::by_a_name_that_is_passed_on("use crate::{api::x::X, cli};\n")]
fn an_upward_import_is_found(#[case] text: &str) {
    let files = [
        ("mcm/process/host.rs", text),
        ("mcm/cli/mod.rs", "mod code;\npub use code::Code;\n"),
        ("mcm/cli/code.rs", ""),
    ];
    let found = upward_imports(&Tree::of(&files));
    assert!(matches!(found.as_slice(), [one] if one.starts_with("mcm/process/host.rs uses mcm/cli/")), "{found:?}");
}

#[rstest]
#[case("cli", "process")]
fn floors_are_used_from_above_only(#[case] above: &str, #[case] below: &str) {
    let file = |room: &str| format!("mcm/{room}/mod.rs");
    let uses = |other: &str| format!("use crate::{other}::X;\npub struct X;\n");
    let downward = uses(below);
    assert_eq!(upward_imports(&Tree::of(&[(&file(above), &downward), (&file(below), "pub struct X;\n")])), [""; 0]);
    let upward = uses(above);
    let found = upward_imports(&Tree::of(&[(&file(above), "pub struct X;\n"), (&file(below), &upward)]));
    assert_eq!(found, [format!("{} uses {}", file(below), file(above))]);
}

/// The crates of a workspace with two drivers.
const WORKSPACE: [(&str, &str); 7] = [
    ("mcm/lib.rs", "use mcm_driver_host::Catalogue;\n"),
    ("driver-host/lib.rs", "mod catalogue;\npub use catalogue::Catalogue;\npub(crate) use mcm_driver::*;\n"),
    (
        "driver-host/catalogue.rs",
        "use super::Code;\nuse mcm_api::labels::KEY;\npub struct Catalogue;\nfn all() { mcm_driver_one_two::open() }\n",
    ),
    ("api/lib.rs", "pub mod labels;\n"),
    ("api/labels.rs", "pub const KEY: &str = \"\";\n"),
    ("driver/lib.rs", "mod code;\npub use code::Code;\n"),
    ("driver/code.rs", "use mcm_api::labels::KEY;\npub struct Code;\n"),
];

fn workspace_with(changed: &[(&str, &str)]) -> Tree {
    let drivers = [
        ("drivers/one-two/lib.rs", "mod calls;\nuse mcm_driver::Code;\npub fn open() {}\n"),
        ("drivers/one-two/calls.rs", "use mcm_api::labels;\n"),
        ("drivers/three/lib.rs", "pub struct Login;\n"),
    ];
    let mut files: BTreeMap<&str, &str> = WORKSPACE.into_iter().chain(drivers).collect();
    files.extend(changed.iter().copied());
    Tree::of(&files.into_iter().collect::<Vec<_>>())
}

#[test]
fn crates_without_faults_pass_every_rule_and_are_seen_through_what_passes_them_on() {
    let tree = workspace_with(&[]);
    let all = [circles_of(&tree), imports_of_crates(&tree), upward_imports(&tree)];
    assert_eq!(all.concat(), [""; 0]);
    let used = &tree.imports()[Path::new("driver-host/catalogue.rs")];
    let expected = ["api/labels.rs", "driver/code.rs", "drivers/one-two/lib.rs"].map(PathBuf::from);
    assert_eq!(used.iter().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
}

#[rstest]
#[case::another_driver("drivers/one-two/calls.rs", "use mcm_driver_three::Login;\n", "mcm_driver_three")]
#[case::another_driver_in_code(
    "drivers/one-two/calls.rs",
    "fn f() { mcm_driver_three::login() }\n",
    "mcm_driver_three"
)]
#[case::another_driver_passed_on("drivers/one-two/lib.rs", "pub use mcm_driver_three::Login;\n", "mcm_driver_three")]
#[case::the_product("drivers/one-two/calls.rs", "use mcm::cli::run;\n", "mcm")]
#[case::the_loop_by_rules("rules/plan.rs", "use mcm_driver_host::Catalogue;\n", "mcm_driver_host")]
#[case::a_driver_by_the_interface("driver/code.rs", "use mcm_driver_three::Login;\n", "mcm_driver_three")]
#[case::the_interface_by_the_types("api/labels.rs", "use mcm_driver::Code;\n", "mcm_driver")]
fn a_crate_that_uses_one_it_may_not_is_found(#[case] file: &str, #[case] text: &str, #[case] used: &str) {
    assert_eq!(imports_of_crates(&workspace_with(&[(file, text)])), [format!("{file} uses {used}")]);
}

#[rstest]
#[case::an_executor("use super::apply::Kinds;\n", "apply.rs")]
#[case::a_registration("use super::register::KIND;\n", "register.rs")]
#[case::metrics("use crate::kind::metrics::count;\n", "metrics.rs")]
#[case::in_code("fn plan() { super::apply::run() }\n", "apply.rs")]
fn a_planning_file_that_imports_a_shell_is_found(#[case] text: &str, #[case] shell: &str) {
    let tree = with(&[("controllers/kind/plan.rs", text), ("controllers/kind/metrics.rs", "")]);
    assert_eq!(imports_of_shells(&tree), [format!("controllers/kind/plan.rs uses controllers/kind/{shell}")]);
}

#[test]
fn a_planning_file_that_imports_a_folder_of_executors_is_found() {
    let tree = with(&[
        ("controllers/kind/apply.rs", "mod calls;\npub(crate) use calls::Calls;\n"),
        ("controllers/kind/apply/calls.rs", "pub struct Calls;\n"),
        ("controllers/kind/part.rs", "use super::apply::Calls;\n"),
    ]);
    let found = imports_of_shells(&tree);
    assert_eq!(found, ["controllers/kind/part.rs uses controllers/kind/apply/calls.rs"]);
}

#[test]
fn a_planning_file_may_use_what_observing_has_read() {
    let tree = with(&[("controllers/kind/plan.rs", "use super::observe::observe;\n")]);
    assert_eq!(imports_of_shells(&tree), [""; 0]);
}

#[test]
fn impure_words_are_found_in_code_only() {
    let text = "\
//! tokio in a comment
use kube::{Client, ResourceExt}; // Api in a comment
const TEXT: &str = \"the Api of tokio\";
fn plan() -> Timestamp { Timestamp::now() }
mod runtime_of_nothing;
#[cfg(test)]
mod tests {
    use tokio::time::Instant;
}
";
    let found = impurities(&Tree::of(&[("rules/plan.rs", text), ("rules/apply.rs", text)]));
    let expected = [
        "rules/plan.rs:2: Client is a client: use kube::{Client, ResourceExt};",
        "rules/plan.rs:4: Timestamp::now is a clock: fn plan() -> Timestamp { Timestamp::now() }",
    ];
    assert_eq!(found, expected);
    assert!(code_of(text).all(|(_, line)| words_of(&line).all(|word| word != "Instant")));
}

#[rstest]
#[case("a::{b, c::{D, e as f}}", &["a::b", "a::c::D", "a::c::e"])]
#[case("super::{self, a::{self, B}}", &["super", "super::a", "super::a::B"])]
#[case("crate::{api::{labels, machine::Machine}, plan::Plan}", &["crate::api::labels", "crate::api::machine::Machine", "crate::plan::Plan"])]
fn braces_of_a_use_are_expanded(#[case] tree: &str, #[case] expected: &[&str]) {
    let paths: Vec<String> = expand(tree).into_iter().map(|(path, _)| path.join("::")).collect();
    assert_eq!(paths, expected);
}

#[test]
fn a_file_before_a_circle_is_not_part_of_it() {
    let edge = |from: &str, to: &[&str]| (PathBuf::from(from), to.iter().map(PathBuf::from).collect());
    let graph = [edge("a", &["b"]), edge("b", &["c"]), edge("c", &["b"]), edge("d", &["a"])].into();
    assert_eq!(circles(&graph), [vec![PathBuf::from("b"), PathBuf::from("c")]]);
}

#[rstest]
#[case::another_name(&["a/more_tests.rs"], &["a/more_tests.rs: name it tests.rs"])]
#[case::both_forms(&["a/tests.rs", "a/tests/mod.rs", "a/tests/b.rs"], &["a: two"])]
#[case::a_folder_without_its_root(&["a/tests.rs", "a/tests/b.rs"], &["a/tests/b.rs: its folder has no mod.rs"])]
#[case::one_file(&["a/tests.rs"], &[])]
#[case::a_folder(&["a/tests/mod.rs", "a/tests/b.rs"], &[])]
fn a_misplaced_test_file_is_found(#[case] files: &[&str], #[case] expected: &[&str]) {
    let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    assert_eq!(misplaced_tests(&files), expected);
}
