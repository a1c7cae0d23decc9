//! The kinds of objects that commands take, by the words of users.

use mcm_api::{
    kinds::{MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, MCM_MACHINES, NODES, ResourceKind},
    machine::GROUP,
};

/// Controllers, by the kind of their objects, as in logs and metrics.
pub const CONTROLLERS: [(&str, &str); 4] =
    [(DEPLOYMENT, "machinedeployment"), (SET, "machineset"), (MACHINE, "machine"), (CLASS, "machineclass")];
pub const DEPLOYMENT: &str = MACHINE_DEPLOYMENTS.name;
pub const SET: &str = MACHINE_SETS.name;
pub const MACHINE: &str = MACHINES.name;
pub const CLASS: &str = MACHINE_CLASSES.name;
/// Kind of a Node in the command line.
pub const NODE: &str = NODES.name;

/// Words for a kind beside its names.
const OTHER_WORDS: [(&str, &str); 3] = [("machdeploy", DEPLOYMENT), ("machset", SET), ("mach", MACHINE)];

/// The kind of a word, as kubectl takes it: singular, plural or short.
pub fn kind_of(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let word = word.strip_suffix(GROUP).and_then(|word| word.strip_suffix('.')).unwrap_or(&word);
    let all = [MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, MACHINE_CLASSES, NODES, MCM_MACHINES];
    let has_word = |kind: &ResourceKind| OTHER_WORDS.contains(&(word, kind.name));
    all.iter().find(|kind| kind.is_named(word) || has_word(kind)).map(|kind| kind.name)
}
