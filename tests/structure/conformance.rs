//! The pages `docs/conformance*.md` name tests that exist, and their numbers are right.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::tree::{Crate, crates_of, module_of};

/// The number of rows that are not open and have no test. It only decreases: a row gets its test in the commit that
/// adds it.
const UNTESTED: usize = 0;
/// Rows that are not implemented.
const OPEN: usize = 0;

/// The two halves of the suite of drivers, below the test kit: file and macro.
const SUITES: [(&str, &str); 2] = [("suite.rs", "driver_suite!"), ("profile.rs", "profile_suite!")];

/// The list of tests that are made for each cloud: what it begins with, and the name of the module of a cloud in it.
const EVERY_CLOUD: (&str, &str) = ("every_cloud! {", "$cloud");

#[test]
fn every_behaviour_has_its_verdict_and_a_test_that_exists() {
    let tests = tests_below(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(tests.len() > 700, "only {} tests were found", tests.len());
    let limits = Limits { untested: UNTESTED, open: OPEN };
    let problems = problems(&document("conformance.md"), &document("compatibility.md"), &tests, limits);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_rule_of_cluster_api_has_its_verdict_and_tests_that_exist() {
    let tests = tests_below(Path::new(env!("CARGO_MANIFEST_DIR")));
    let problems = problems_of_rules(&document("conformance-capi.md"), &tests);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_test_on_the_page_of_upstream_specs_exists() {
    let tests = tests_below(Path::new(env!("CARGO_MANIFEST_DIR")));
    let page = document("cluster-api/upstream-specs.md");
    let named: Vec<&str> = page.split('`').filter(|text| text.contains("::")).collect();
    assert!(named.len() > 20, "only {named:?} were found");
    let missing: Vec<&str> = named.into_iter().filter(|name| !tests.contains(*name)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_behaviour_of_a_cloud_driver_has_its_verdict_and_a_test_that_exists() {
    let tests = tests_below(Path::new(env!("CARGO_MANIFEST_DIR")));
    let limits = Limits { untested: 0, open: 0 };
    let pages = pages_of_clouds();
    assert!(pages.len() >= 3, "only {pages:?} were found");
    for page in pages {
        let problems = problems(&document(&page), &document("compatibility.md"), &tests, limits);
        assert!(problems.is_empty(), "{page}:\n{}", problems.join("\n"));
    }
}

/// The pages of drivers: `conformance-<cloud>.md`, one for each cloud.
fn pages_of_clouds() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("conformance-") && name != "conformance-capi.md").collect()
}

#[test]
fn each_flaw_of_a_page_of_rules_is_found() {
    let head = "| `done` | 1 | x |\n| `part` | 1 | x |\n| `missing` | 1 | x |\n| `fact` | 1 | x |\n| all | 4 | |\n";
    let table = "\n## A\n\n| No. | Rule | Level | Verdict | Test |\n|---|---|---|---|---|\n";
    let good =
        ["| A1 | a | M | done | `a::b` |", "| A2 | a | M | part: b | none |", "| A3 | a | M | missing: c | none |"];
    let tests: BTreeSet<String> = ["a::b".to_owned()].into();
    let judged = |last: &str| problems_of_rules(&format!("{head}{table}{}\n{last}\n", good.join("\n")), &tests);
    assert_eq!(judged("| A4 | a | fact | fact | none |"), [""; 0]);
    for (flaw, text) in [
        ("| A4 | a | M | done | none |", "A4: what is done has a test"),
        ("| A4 | a | M | done | `a::c` |", "A4: there is no test a::c"),
        ("| A4 | a | M | part | `a::b` |", "A4: say what is missing"),
        ("| A4 | a | M | almost | `a::b` |", "A4: the verdict is none of done, part, missing, fact: almost"),
        ("| A1 | a | M | fact | none |", "A1: the number is there twice"),
        ("| A4 | a | fact | none |", "A4: a row has five cells"),
        ("| A4 | a | M | missing: d | none |", "the head says missing 1, the page has 2"),
    ] {
        let found = judged(flaw);
        assert!(found.iter().any(|problem| problem == text), "{flaw}: {found:?}");
    }
}

/// Problems of a page of rules: number, rule, level, verdict, tests.
fn problems_of_rules(page: &str, tests: &BTreeSet<String>) -> Vec<String> {
    const VERDICTS: [&str; 4] = ["done", "part", "missing", "fact"];
    let (mut found, mut numbers, mut counts) = (Vec::new(), BTreeSet::new(), BTreeMap::<&str, usize>::new());
    for (_, cells) in rows(page) {
        let number = cells.first().copied().unwrap_or_default();
        let mut say = |text: String| found.push(format!("{number}: {text}"));
        if !numbers.insert(number) {
            say("the number is there twice".to_owned());
        }
        let &[_, _, _, text, named] = cells.as_slice() else {
            say("a row has five cells".to_owned());
            continue;
        };
        let verdict = text.split(':').next().unwrap_or_default();
        *counts.entry(verdict).or_default() += 1;
        match verdict {
            "done" if named == "none" => say("what is done has a test".to_owned()),
            "part" | "missing" if verdict == text => say("say what is missing".to_owned()),
            _ if !VERDICTS.contains(&verdict) => {
                say(format!("the verdict is none of {}: {verdict}", VERDICTS.join(", ")));
            }
            _ => {}
        }
        for test in named.split(", ").filter(|test| *test != "none") {
            let test = test.trim_matches('`');
            if !tests.contains(test) {
                say(format!("there is no test {test}"));
            }
        }
    }
    let said = head(page);
    let all = counts.values().sum();
    for (name, number) in
        VERDICTS.iter().map(|name| (*name, counts.get(name).copied().unwrap_or_default())).chain([("all", all)])
    {
        let told = said.get(name).copied().unwrap_or_default();
        if told != number {
            found.push(format!("the head says {name} {told}, the page has {number}"));
        }
    }
    found
}

#[test]
fn each_flaw_of_a_page_is_found_and_named_by_its_row() {
    const COMPATIBILITY: &str = "## Changed\n\n| Subject | Go |\n|---|---|\n| Resync | every 10 min |\n";
    let head = "| `same` | 1 | x |\n| `fixed` | 0 | x |\n| `different` | 1 | x |\n| `open` | 1 | x |\n| all | 3 | of which 0 x |\n";
    let row = |text: &str| format!("| {text} |\n");
    let table = "\n### 1.1 Kinds\n\n| No. | Behaviour | Verdict | Test |\n|---|---|---|---|\n";
    let good = [
        row("1.1/1 | a | same | `a::b`"),
        row("1.1/2 | b | different: [Resync](compatibility.md#changed) | `a::b`, `a::c`"),
        row("1.1/3 | c | open | none"),
    ];
    let tests: BTreeSet<String> = ["a::b", "a::c"].map(str::to_owned).into();
    let judged = |head: &str, rows: &[String]| {
        let page = format!("{head}{table}{}", rows.concat());
        problems(&page, COMPATIBILITY, &tests, Limits { untested: 0, open: 1 })
    };
    assert_eq!(judged(head, &good), [""; 0]);
    let flaws = [
        ("1.1/1 | a | same | `a::d`", "1.1/1: there is no test a::d"),
        ("1.1/1 | a | similar | `a::b`", "1.1/1: the verdict is none of same, fixed, different, open: similar"),
        ("1.1/2 | a | same | `a::b`", "1.1/2: the number is there twice"),
        ("1.2/1 | a | same | `a::b`", "1.2/1: it is in chapter 1.1"),
        ("1.1/1 | a | same", "1.1/1: a row has four cells"),
        ("1.1/1 | a | same | a::b", "1.1/1: a test is in backticks: a::b"),
        ("1.1/1 | a | open | `a::b`", "1.1/1: an open row has no test"),
        ("1.1/1 | a | same | none", "1 rows are not open and have no test, UNTESTED is 0: 1.1/1"),
        ("1.1/1 | a | open | none", "2 rows are open, OPEN is 1"),
        ("1.1/1 | a | different | `a::b`", "1.1/1: compatibility.md has no such row: different"),
        (
            "1.1/1 | a | different: [Sync](compatibility.md#changed) | `a::b`",
            "1.1/1: compatibility.md has no such row: different: [Sync](compatibility.md#changed)",
        ),
        (
            "1.1/1 | a | different: [Resync](compatibility.md#fixed) | `a::b`",
            "1.1/1: compatibility.md has no such row: different: [Resync](compatibility.md#fixed)",
        ),
    ];
    for (flaw, text) in flaws {
        let found = judged(head, &[row(flaw), good[1].clone(), good[2].clone()]);
        assert!(found.iter().any(|problem| problem == text), "{flaw}: {found:?}");
    }
    let wrong = judged(&head.replace("`same` | 1", "`same` | 2").replace("which 0", "which 4"), &good);
    assert_eq!(wrong, ["the head says same 2, the page has 1", "the head says untested 4, the page has 0"]);
}

#[test]
fn tests_are_found_with_their_modules() {
    let text = "\
#[test]
fn at_the_top() {}
mod outer {
    #[cfg(test)]
    mod tests {
        fn helper() {}
        #[rstest]
        #[case::one(1)]
        async fn with_cases(#[case] number: u8) {}
        proptest! {
            #[test]
            fn a_property(
                seed in any::<u64>(),
            ) {}
        }
    }
    #[tokio::test(start_paused = true)]
    async fn beside_it() {}
}
";
    assert_eq!(
        tests_in(text),
        ["at_the_top", "outer::tests::with_cases", "outer::tests::a_property", "outer::beside_it"]
    );
    assert_eq!(module_of(Path::new("integration/main.rs")), ["integration"]);
    let place = |file: &str| Crate::of(Path::new(file)).place().join("::");
    let files = ["mcm/cli/mod.rs", "api/lib.rs", "simulated-cloud/lib.rs", "drivers/metal-stack/spec/mod.rs"];
    assert_eq!(files.map(place), ["", "api", "simulated_cloud", "driver::metal_stack"]);
}

#[test]
fn tests_for_each_cloud_are_found_in_its_module() {
    let text = "\
macro_rules! every_cloud {
    ($($feature:literal $cloud:ident)*) => {$(
        mod $cloud {
            #[tokio::test]
            async fn it_passes() {}
        }
    )*};
}

every_cloud! {
    \"one\" one
    \"two-three\" two_three
}
";
    assert_eq!(tests_in(text), ["one::it_passes", "two_three::it_passes"]);
}

/// How many rows may be so.
#[derive(Clone, Copy)]
struct Limits {
    untested: usize,
    open: usize,
}

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)).unwrap()
}

/// Problems of the page.
fn problems(page: &str, compatibility: &str, tests: &BTreeSet<String>, limits: Limits) -> Vec<String> {
    let reasons = reasons(compatibility);
    let (mut found, mut numbers) = (Vec::new(), BTreeSet::new());
    let (mut verdicts, mut untested) = (BTreeMap::<&str, usize>::new(), Vec::new());
    for (chapter, cells) in rows(page) {
        let number = cells.first().copied().unwrap_or_default();
        let mut say = |text: String| found.push(format!("{number}: {text}"));
        if number.split('/').next() != Some(chapter) {
            say(format!("it is in chapter {chapter}"));
        }
        if !numbers.insert(number) {
            say("the number is there twice".to_owned());
        }
        let &[_, _, text, named] = cells.as_slice() else {
            say("a row has four cells".to_owned());
            continue;
        };
        let verdict = text.split(':').next().unwrap_or_default();
        if !["same", "fixed", "different", "open"].contains(&verdict) {
            say(format!("the verdict is none of same, fixed, different, open: {verdict}"));
        }
        if (verdict == "different" && !reasons.contains(text)) || (verdict != "different" && verdict != text) {
            say(format!("compatibility.md has no such row: {text}"));
        }
        *verdicts.entry(verdict).or_default() += 1;
        match (verdict, named) {
            ("open", "none") => {}
            ("open", _) => say("an open row has no test".to_owned()),
            (_, "none") => untested.push(number),
            (_, named) => {
                named.split(", ").for_each(|test| match test.strip_prefix('`').and_then(|it| it.strip_suffix('`')) {
                    None => say(format!("a test is in backticks: {test}")),
                    Some(test) if !tests.contains(test) => say(format!("there is no test {test}")),
                    Some(_) => {}
                })
            }
        }
    }
    let count = |verdict: &str| verdicts.get(verdict).copied().unwrap_or_default();
    if untested.len() != limits.untested {
        let (count, limit, rows) = (untested.len(), limits.untested, untested.join(" "));
        found.push(format!("{count} rows are not open and have no test, UNTESTED is {limit}: {rows}"));
    }
    if count("open") != limits.open {
        found.push(format!("{} rows are open, OPEN is {}", count("open"), limits.open));
    }
    let all = [
        ("same", count("same")),
        ("fixed", count("fixed")),
        ("different", count("different")),
        ("open", count("open")),
        ("all", verdicts.values().sum()),
        ("untested", untested.len()),
    ];
    let said = head(page);
    for (name, number) in all {
        let said = said.get(name).copied().unwrap_or_default();
        if said != number {
            found.push(format!("the head says {name} {said}, the page has {number}"));
        }
    }
    found
}

/// The cells of each row of a table of behaviours, with the chapter that it is in.
fn rows(page: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    let (mut chapter, mut is_in_table) = ("", false);
    page.lines().filter_map(move |line| {
        if let Some(heading) = line.strip_prefix('#') {
            chapter = heading.trim_start_matches('#').split_whitespace().next().unwrap_or_default();
        }
        let cells = cells(line);
        let is_row = is_in_table && cells.first().is_some_and(|first| !first.starts_with("---"));
        is_in_table = line.starts_with('|') && (is_in_table || line.starts_with("| No. |"));
        is_row.then_some((chapter, cells))
    })
}

fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix('|').and_then(|rest| rest.strip_suffix('|'));
    inner.map(|inner| inner.split('|').map(str::trim).collect()).unwrap_or_default()
}

/// The numbers in the head of the page, by verdict.
fn head(page: &str) -> BTreeMap<&str, usize> {
    let head = page.split("\n### ").next().unwrap_or_default();
    let mut said = BTreeMap::new();
    for line in head.lines() {
        let &[name, number, text] = cells(line).as_slice() else { continue };
        said.extend(number.parse().ok().map(|number| (name.trim_matches('`'), number)));
        if name == "all" {
            said.extend(text.split(' ').find_map(|word| word.parse().ok()).map(|number| ("untested", number)));
        }
    }
    said
}

/// A verdict for each row of compatibility.md.
fn reasons(compatibility: &str) -> BTreeSet<String> {
    let mut anchor = String::new();
    let mut found = BTreeSet::new();
    for line in compatibility.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            anchor = heading.to_lowercase().replace(' ', "-");
        }
        found.extend(cells(line).first().map(|subject| format!("different: [{subject}](compatibility.md#{anchor})")));
    }
    found
}

/// The paths of all tests, as in `cargo test`. Those of crates beside the product begin with the place of the crate, such as `api`
/// or `driver::<cloud>`; those below `tests` with the name of their program.
fn tests_below(root: &Path) -> BTreeSet<String> {
    let crates = crates_of(root).into_iter().map(|(owner, source)| (owner.place(), source));
    let suites = SUITES.map(|(file, name)| {
        let text = fs::read_to_string(root.join("src/driver/testing").join(file)).unwrap();
        (name, cases_after(&text, &format!("{name} {{ $world:\n")))
    });
    let mut found = BTreeSet::new();
    for (place, base) in crates.chain([(Vec::new(), root.join("tests"))]) {
        let mut folders = vec![base.clone()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let file: PathBuf = path.strip_prefix(&base).unwrap().to_owned();
                    let module = [place.clone(), module_of(&file)].concat();
                    let text = fs::read_to_string(&path).unwrap();
                    let mut tests = tests_in(&text);
                    for (name, common) in &suites {
                        if text.contains(&format!("{name}(World);")) {
                            tests.extend_from_slice(common);
                        }
                        tests.extend(cases_after(&text, &format!("{name} {{ World:\n")));
                    }
                    found.extend(tests.into_iter().map(|test| [&module[..], &[test]].concat().join("::")));
                }
            }
        }
    }
    found
}

/// The names in a list of cases.
fn cases_after(text: &str, begin: &str) -> Vec<String> {
    let list = text.split_once(begin).and_then(|(_, rest)| rest.split_once('}'));
    list.map_or("", |(list, _)| list).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn each_driver_of_a_cloud_has_the_suite() {
    let tests = tests_below(Path::new(env!("CARGO_MANIFEST_DIR")));
    let drivers = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/drivers")).unwrap();
    let lacks =
        |name: &String| !tests.contains(&format!("driver::{name}::tests::suite::without_a_uid_nothing_is_created"));
    let names = drivers.map(|entry| entry.unwrap().file_name().into_string().unwrap().replace('-', "_"));
    assert_eq!(names.filter(lacks).collect::<Vec<_>>(), [""; 0]);
    let text = "a! { World:\n    one\n    two_three\n}\n";
    assert_eq!(cases_after(text, "a! { World:\n"), ["one", "two_three"]);
}

/// The tests of a file, once for each cloud if it has a list of these.
fn tests_in(text: &str) -> Vec<String> {
    let (begin, cloud) = EVERY_CLOUD;
    let list = text.split_once(&format!("\n{begin}\n")).and_then(|(_, rest)| rest.split_once("\n}"));
    let names = list.map_or("", |(list, _)| list).lines().filter_map(|line| line.split_whitespace().nth(1));
    let names: Vec<&str> = names.collect();
    let for_each = |test: String| match test.contains(cloud) {
        true => names.iter().map(|name| test.replace(cloud, name)).collect(),
        false => vec![test],
    };
    written_tests(text).flat_map(for_each).collect()
}

/// The tests of a file, with the modules within the file. The files are formatted: a module ends where its indentation does.
fn written_tests(text: &str) -> impl Iterator<Item = String> {
    let mut modules: Vec<(usize, &str)> = Vec::new();
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let (code, depth) = (line.trim(), line.len() - line.trim_start().len());
        if code == "}" && modules.last().is_some_and(|(opened, _)| *opened == depth) {
            modules.pop();
        }
        if let Some(name) = code.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            modules.push((depth, name));
        }
        let attributes = ["#[test]", "#[tokio::test", "#[rstest]", "#[rstest::rstest]"];
        is_test |= attributes.iter().any(|attribute| code.starts_with(attribute));
        let name = code.strip_prefix("async ").unwrap_or(code).strip_prefix("fn ")?.split(['(', '<']).next()?;
        let path = modules.iter().map(|(_, module)| *module).chain([name]);
        std::mem::take(&mut is_test).then(|| path.collect::<Vec<_>>().join("::"))
    })
}
