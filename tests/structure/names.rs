//! Names that grep finds: a type has two words, and no other type has its name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    room_of, root,
    tree::{Tree, code_of},
};

/// Names that stand for the same idea in each kind, so that many types have them.
const CONVENTION: [&str; 10] =
    ["Action", "Event", "Key", "Kind", "Memory", "Plan", "Settings", "Snapshot", "Step", "Wait"];

/// The types of each crate whose name has one word, and those that share their name with another type. The numbers only fall:
/// lower a number in the commit that renames a type.
const LIMITS: [(&str, Count); 4] = [
    ("api", Count { one_word: 10, shared: 9 }),
    ("conversion", Count { one_word: 8, shared: 10 }),
    ("driver", Count { one_word: 3, shared: 0 }),
    ("drivers", Count { one_word: 355, shared: 247 }),
];

/// Numbers of types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    one_word: usize,
    shared: usize,
}

#[test]
fn types_have_names_of_two_words_that_no_other_type_has() {
    let counts = counts_of(&Tree::read(root()));
    let limits: BTreeMap<String, Count> = LIMITS.into_iter().map(|(room, count)| (room.to_owned(), count)).collect();
    let differences: Vec<String> = counts
        .iter()
        .filter(|(room, count)| limits.get(*room).copied().unwrap_or_default() != **count)
        .map(|(room, count)| format!("(\"{room}\", {count:?}),"))
        .collect();
    assert!(differences.is_empty(), "the limits are others:\n{}", differences.join("\n"));
}

#[test]
fn functions_say_what_they_return_or_do() {
    let tree = Tree::read(root());
    let found: Vec<String> = tree.files().flat_map(|(file, text)| nameless_functions(file, text)).collect();
    assert_eq!(found, [""; 0]);
    let text = "impl A {\n    pub fn of(a: &B) -> Self {}\n    const fn of<T>() {}\n    fn of_machine() {}\n}\n";
    assert_eq!(nameless_functions(Path::new("rules/a.rs"), text), ["rules/a.rs:2", "rules/a.rs:3"]);
}

/// The places of functions that are called `of`, a name without a result or an action.
fn nameless_functions(file: &Path, text: &str) -> Vec<String> {
    let is_nameless = |line: &str| ["fn of(", "fn of<"].iter().any(|head| line.contains(head));
    let found = code_of(text).filter(|(_, line)| is_nameless(line));
    found.map(|(number, _)| format!("{}:{number}", file.display())).collect()
}

#[test]
fn types_are_counted_by_their_words_and_by_how_many_have_the_name() {
    let files = [
        ("rules/a.rs", "pub struct Turn;\nstruct LeaseTurn;\npub(crate) enum Key {}\n"),
        ("rules/b.rs", "trait Turn {}\ntype MCMTurn = u8;\n#[cfg(test)]\nmod tests {\n    struct Way;\n}\n"),
        ("drivers/one/lib.rs", "struct LeaseTurn<T>(T);\nimpl X for Y {\n    type Found = u8;\n}\n"),
    ];
    let counts = counts_of(&Tree::of(&files));
    assert_eq!(counts["rules"], Count { one_word: 2, shared: 3 });
    assert_eq!(counts["drivers"], Count { one_word: 0, shared: 1 });
}

fn counts_of(tree: &Tree) -> BTreeMap<String, Count> {
    let types: Vec<(String, String)> =
        tree.files().flat_map(|(file, text)| types_in(text).map(move |name| (room_of(file), name))).collect();
    let mut once = BTreeSet::new();
    let repeated: BTreeSet<&str> =
        types.iter().map(|(_, name)| name.as_str()).filter(|name| !once.insert(*name)).collect();
    let mut counts = BTreeMap::<String, Count>::new();
    for (room, name) in types.iter().filter(|(_, name)| !CONVENTION.contains(&name.as_str())) {
        let count = counts.entry(room.clone()).or_default();
        count.one_word += usize::from(words_in(name) == 1);
        count.shared += usize::from(repeated.contains(name.as_str()));
    }
    counts
}

/// The types that a file defines. An associated type is indented.
fn types_in(text: &str) -> impl Iterator<Item = String> {
    const ITEMS: [&str; 4] = ["struct", "enum", "trait", "type"];
    code_of(text).filter_map(|(_, line)| {
        let is_indented = line.starts_with(' ');
        let line = line.trim();
        let item = match line.strip_prefix("pub") {
            Some(rest) => rest.strip_prefix('(').and_then(|rest| rest.split_once(") ")).map_or(rest, |(_, rest)| rest),
            None => line,
        };
        let (word, rest) = item.trim_start().split_once(' ')?;
        let is_type = ITEMS.contains(&word) && !(word == "type" && is_indented);
        let name: String = rest.chars().take_while(|letter| letter.is_alphanumeric()).collect();
        (is_type && name.starts_with(char::is_uppercase)).then_some(name)
    })
}

/// `MCMMachine` has two words.
fn words_in(name: &str) -> usize {
    let letters: Vec<char> = name.chars().collect();
    let begins = |at: usize| {
        let is_upper = |at: usize| letters.get(at).is_some_and(|letter| letter.is_uppercase());
        let is_lower = |at: usize| letters.get(at).is_some_and(|letter| letter.is_lowercase());
        is_upper(at) && (at == 0 || !is_upper(at - 1) || is_lower(at + 1))
    };
    (0..letters.len()).filter(|at| begins(*at)).count()
}
