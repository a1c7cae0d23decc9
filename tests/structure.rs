//! The structure of the source of all crates, as rules: planning code is pure, each crate uses only those that it may, files form no
//! circles, and a kind is added in one folder and one line. The pages of conformance name tests that exist.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use tree::{Crate, PRODUCT, Tree, circles, code_of, crates_of, product_of, words_of};

#[path = "structure/catalogue.rs"]
mod catalogue;
#[path = "structure/conformance.rs"]
mod conformance;
#[path = "structure/faults.rs"]
mod faults;
#[path = "structure/names.rs"]
mod names;
#[path = "structure/permissions.rs"]
mod permissions;
#[path = "structure/prose.rs"]
mod prose;
#[path = "structure/tree.rs"]
mod tree;

/// Crates with decisions.
const PURE: [&str; 6] = ["api", "rules", "conversion", "controllers", "capi", "adopt"];
/// The first line of a file with decisions elsewhere ends so.
const SAYS_PURE: &str = " Pure.";

/// The crates that each crate may use, by its folder in `src`; `drivers` stands for each of these. The product may use all. The
/// compiler allows more: a manifest may list any other.
const MAY_USE: [(&str, &[&str]); 13] = [
    ("api", &[]),
    ("conversion", &["mcm_api"]),
    ("driver", &["mcm_api"]),
    ("drivers", &["mcm_api", "mcm_driver"]),
    ("simulated-cloud", &["mcm_api", "mcm_driver"]),
    ("rules", &["mcm_api", "mcm_driver"]),
    ("runtime", &["mcm_api", "mcm_rules"]),
    ("fake-api", &["mcm_api", "mcm_runtime"]),
    // The catalogue of drivers, those of clouds among them.
    ("driver-host", &["mcm_api", "mcm_driver", "mcm_driver_", "mcm_runtime", "mcm_simulated_cloud"]),
    ("controllers", &["mcm_api", "mcm_driver", "mcm_driver_host", "mcm_rules", "mcm_runtime"]),
    (
        "adopt",
        &["mcm_api", "mcm_controllers", "mcm_conversion", "mcm_driver", "mcm_driver_host", "mcm_rules", "mcm_runtime"],
    ),
    (
        "capi",
        &["mcm_api", "mcm_controllers", "mcm_conversion", "mcm_driver", "mcm_driver_host", "mcm_rules", "mcm_runtime"],
    ),
    (
        "insight",
        &[
            "mcm_api",
            "mcm_controllers",
            "mcm_conversion",
            "mcm_driver",
            "mcm_driver_host",
            "mcm_fake_api",
            "mcm_rules",
            "mcm_runtime",
        ],
    ),
];

/// Files in these rooms that are no decisions: they observe, execute, register, measure, cache, or come from the flags.
const OUTSIDE: [&str; 6] = ["observe.rs", "apply.rs", "register.rs", "metrics.rs", "cache.rs", "settings.rs"];
/// A folder of executors.
const OUTSIDE_FOLDER: &str = "apply";
/// The file of these that planning code may use, because it only reads.
const READER: &str = "observe.rs";

/// Words that planning code may not contain, and why.
const FORBIDDEN: [(&str, &str); 15] = [
    ("Client", "a client"),
    ("Api", "a client"),
    ("reqwest", "a client"),
    ("tokio", "tasks"),
    ("futures", "tasks"),
    ("async", "tasks"),
    ("await", "tasks"),
    ("Mutex", "shared state"),
    ("RwLock", "shared state"),
    ("Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("rand", "chance"),
    ("mcm_runtime", "the outside world"),
    ("fs", "the outside world"),
    ("env", "the outside world"),
];

/// Floors of the product from the ground up. A room may use those below it and those beside it.
const FLOORS: [&[&str]; 3] = [&["process"], &["cli"], &["main"]];

#[test]
fn planning_code_is_pure() {
    let tree = Tree::read(root());
    let planning =
        |room: &str| tree.files().filter(|(file, text)| file.starts_with(room) && is_planning(file, text)).count();
    for (room, least) in [("rules", 20), ("controllers", 60), ("conversion", 40), ("insight", 18)] {
        assert!(planning(room) >= least, "only {} files of {room} were found", planning(room));
    }
    none(&impurities(&tree));
}

#[test]
fn planning_code_imports_no_shell() {
    none(&imports_of_shells(&Tree::read(root())));
}

#[test]
fn no_room_imports_one_above_it() {
    none(&upward_imports(&Tree::read(root())));
}

#[test]
fn each_crate_uses_only_those_it_may() {
    none(&imports_of_crates(&Tree::read(root())));
}

#[test]
fn all_crates_are_read() {
    let tree = Tree::read(root());
    let all: BTreeSet<String> = tree.files().map(|(file, _)| Crate::of(file).name).collect();
    for name in
        ["mcm", "mcm_api", "mcm_driver", "mcm_driver_gcp", "mcm_driver_metal_stack", "mcm_fake_api", "mcm_rules"]
    {
        assert!(all.contains(name), "{name} is not among {all:?}");
    }
    let imports = tree.imports();
    let uses = |file: &str, other: &str| imports[Path::new(file)].contains(Path::new(other));
    assert!(uses("drivers/metal-stack/calls.rs", "drivers/metal-stack/server.rs"));
    assert!(uses("drivers/metal-stack/lib.rs", "driver/cloud/creations.rs"));
    assert!(uses("driver/interface.rs", "driver/error.rs"));
    assert!(
        uses("driver-host/catalogue.rs", "driver/interface.rs"),
        "by way of the root of the crate, which passes it on"
    );
}

#[test]
fn each_room_of_the_product_is_on_a_floor() {
    let tree = Tree::read(root());
    let rooms = tree.files().filter(|(file, _)| file.starts_with(PRODUCT) && !file.ends_with("lib.rs"));
    let rooms = rooms.filter(|(file, _)| floor_of(file).is_none());
    none(&rooms.map(|(file, _)| file.display().to_string()).collect::<Vec<_>>());
}

#[test]
fn files_form_no_circles() {
    none(&circles_of(&Tree::read(root())));
}

/// Texts for users are made by `error_line`: the errors of kube-rs print a Debug form of the answer, and repeat their causes.
#[test]
fn no_text_for_users_prints_an_error_chain() {
    let tree = Tree::read(root());
    let is_for_users = |file: &Path| ["insight", "mcm/cli"].iter().any(|room| file.starts_with(room));
    let printed = tree.files().filter(|(file, _)| is_for_users(file)).filter(|(_, text)| {
        let code = product_of(text);
        code.contains("{error:#}") || code.contains("{cause:#}") || code.contains("{source:#}")
    });
    none(&printed.map(|(file, _)| format!("{}: use error_line", file.display())).collect::<Vec<_>>());
}

#[test]
fn tests_are_in_one_file_or_one_folder() {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = crates_of(root()).into_iter().map(|(_, source)| source).collect();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    none(&misplaced_tests(&files));
}

#[test]
fn a_kind_is_known_to_one_line_outside_its_folder() {
    for room in ["controllers", "capi/provider", "capi/stand_in"] {
        each_kind_is_listed(&root().join("src").join(room), "register.rs");
    }
}

fn each_kind_is_listed(room: &Path, list: &str) {
    let kinds = fs::read_to_string(room.join(list)).unwrap();
    let listed = |name: &str| kinds.contains(&format!("{name}::KIND"));
    for folder in fs::read_dir(room).unwrap().flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        if !folder.path().join("register.rs").exists() {
            continue;
        }
        assert!(listed(&name), "{name} registers itself and is not listed");
        for part in ["mod.rs", "observe.rs", "plan.rs", "apply.rs"] {
            let is_there =
                folder.path().join(part).exists() || folder.path().join(part.trim_end_matches(".rs")).exists();
            assert!(is_there, "{name} has no {part}");
        }
    }
}

/// Words in texts of a status by which Gardener classifies errors as a user's. Texts of clouds and API servers may have them, ours
/// must not.
const CLASSIFIED: [&str; 5] = ["notfound", "conflict", "denied", "invalid value", "resourceexhausted"];

#[test]
fn texts_of_controllers_have_no_words_that_others_classify_as_errors_of_a_user() {
    let tree = Tree::read(root());
    let mut violations = Vec::new();
    // The types have names of reasons, which are those of the Go programs.
    let is_text = |file: &Path| {
        PURE.contains(&room_of(file).as_str())
            && !is_outside(file)
            && !file.ends_with("lint.rs")
            && !file.starts_with("api")
    };
    for (file, text) in tree.files().filter(|(file, _)| is_text(file)) {
        let code = product_of(text);
        for (number, line) in (1..).zip(code.lines()).filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let told = line.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
            for word in CLASSIFIED.iter().filter(|word| told.contains(*word)) {
                violations.push(format!("{}:{number}: {word}: {}", file.display(), line.trim()));
            }
        }
    }
    none(&violations);
}

fn none(violations: &[String]) {
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Words in planning code that stand for I/O, tasks, shared state, a clock or chance.
fn impurities(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in tree.files().filter(|(file, text)| is_planning(file, text)) {
        for (number, line) in code_of(text) {
            let says_now = line.contains("Timestamp::now").then_some(("Timestamp::now", "a clock"));
            // A variant of an error of a client, a field and a variable of the compiler are data.
            let code = line.replace("Error::Api", "Error").replace(".env", "").replace("env!", "");
            let words = FORBIDDEN.into_iter().filter(|(word, _)| words_of(&code).any(|other| other == *word));
            for (word, what) in words.chain(says_now) {
                found.push(format!("{}:{number}: {word} is {what}: {}", file.display(), line.trim()));
            }
        }
    }
    found
}

fn imports_of_shells(tree: &Tree) -> Vec<String> {
    let is_shell = |file: &Path| is_outside(file) && file.file_name().is_none_or(|name| name != READER);
    let planning: BTreeSet<&Path> =
        tree.files().filter(|(file, text)| is_planning(file, text)).map(|(file, _)| file).collect();
    pairs(tree).filter(|(file, import)| planning.contains(file.as_path()) && is_shell(import)).map(describe).collect()
}

fn upward_imports(tree: &Tree) -> Vec<String> {
    let is_upward = |(file, import): &(PathBuf, PathBuf)| {
        floor_of(file).zip(floor_of(import)).is_some_and(|(lower, upper)| upper > lower)
    };
    pairs(tree).filter(is_upward).map(describe).collect()
}

/// Crates that the naming crate may not use: a driver uses neither another driver nor the product.
fn imports_of_crates(tree: &Tree) -> Vec<String> {
    let may_use = |file: &Path, other: &str| {
        let room = room_of(file);
        let listed = MAY_USE.iter().find(|(name, _)| *name == room).map(|(_, others)| *others);
        let is_listed = |one: &&str| *one == other || one.ends_with('_') && other.starts_with(*one);
        Crate::of(file).name == other || room == PRODUCT || listed.is_some_and(|others| others.iter().any(is_listed))
    };
    let forbidden = tree.crates_named().into_iter().filter(|(file, other)| !may_use(file, other));
    forbidden.map(|(file, other)| format!("{} uses {other}", file.display())).collect()
}

fn circles_of(tree: &Tree) -> Vec<String> {
    let names = |circle: &Vec<PathBuf>| circle.iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
    circles(&tree.imports()).iter().map(|circle| names(circle).join(" -> ")).collect()
}

/// Test files with other names than `tests.rs`, or those inside a folder `tests`; and modules with both.
fn misplaced_tests(files: &[PathBuf]) -> Vec<String> {
    let mut found = Vec::new();
    let mut forms: BTreeMap<&Path, usize> = BTreeMap::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with("_tests.rs") || name.ends_with("_test.rs") {
            found.push(format!("{}: name it tests.rs", file.display()));
        }
        if name == "tests.rs" {
            *forms.entry(file.parent().unwrap()).or_default() += 1;
        } else if file.parent().is_some_and(|folder| folder.ends_with("tests")) && name == "mod.rs" {
            *forms.entry(file.parent().and_then(Path::parent).unwrap()).or_default() += 1;
        } else if file.parent().is_some_and(|folder| folder.ends_with("tests"))
            && name.ends_with(".rs")
            && !files.contains(&file.with_file_name("mod.rs"))
        {
            found.push(format!("{}: its folder has no mod.rs", file.display()));
        }
    }
    found.extend(
        forms.into_iter().filter(|(_, forms)| *forms > 1).map(|(folder, _)| format!("{}: two", folder.display())),
    );
    found
}

fn pairs(tree: &Tree) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    tree.imports().into_iter().flat_map(|(file, imports)| imports.into_iter().map(move |import| (file.clone(), import)))
}

fn describe((file, import): (PathBuf, PathBuf)) -> String {
    format!("{} uses {}", file.display(), import.display())
}

/// The first folder of a file: its crate, or `drivers` for each of these.
fn room_of(file: &Path) -> String {
    file.iter().next().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_outside(file: &Path) -> bool {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    let is_named = file.file_name().is_some_and(|name| OUTSIDE.iter().any(|outside| name == *outside));
    PURE.contains(&room_of(file).as_str()) && (is_named || parts.any(|part| part == OUTSIDE_FOLDER))
}

fn is_planning(file: &Path, text: &str) -> bool {
    let says_pure = text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.ends_with(SAYS_PURE));
    says_pure || PURE.contains(&room_of(file).as_str()) && !is_outside(file)
}

fn floor_of(file: &Path) -> Option<usize> {
    let room = file.strip_prefix(PRODUCT).ok()?.iter().next()?.to_string_lossy();
    FLOORS.iter().position(|floor| floor.contains(&room.trim_end_matches(".rs")))
}
