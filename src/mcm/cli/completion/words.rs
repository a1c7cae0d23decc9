//! The question of a shell: commands, flags, values or names. Pure.

use clap::{Arg, Command};

use crate::api::kinds::{MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, ResourceKind};

/// The answer without the names, which are in a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CompletionAnswer {
    /// Beginning of the word.
    pub prefix: String,
    /// Candidates and their help.
    pub candidates: Vec<(String, String)>,
    pub names: Option<NameQuery>,
    /// The word may be the name of a file.
    pub takes_file: bool,
    /// Of the words before.
    pub namespace: Option<String>,
    pub kubeconfig: Option<String>,
    pub context: Option<String>,
    pub as_user: Option<String>,
    pub as_groups: Vec<String>,
}

/// Names that are sought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameQuery {
    /// `NAME` of a MachineDeployment, or `KIND/NAME`; the kind if it is already there.
    Objects(Option<String>),
    /// Of this kind.
    Of(ResourceKind),
    Namespaces,
}

/// Flags whose values lead to a cluster.
const NAMESPACE: &str = "namespace";
const KUBECONFIG: &str = "kubeconfig";

/// Finds what the last word may be.
pub(super) fn ask(root: &Command, words: &[String]) -> CompletionAnswer {
    let (last, before) = words.split_last().map_or((String::new(), &[][..]), |(last, before)| (last.clone(), before));
    let mut asked = CompletionAnswer { prefix: last.clone(), ..CompletionAnswer::default() };
    let mut command = root;
    let mut positionals = 0;
    let mut pending: Option<&Arg> = None;
    let mut flags_ended = false;
    for word in before {
        if let Some(arg) = pending.take() {
            asked.keep(arg, word);
        } else if flags_ended {
            positionals += 1;
        } else if word == "--" {
            flags_ended = true;
        } else if let Some((arg, value)) = flag(command, word) {
            match value {
                Some(value) => asked.keep(arg, value),
                None if takes_next_word(arg) => pending = Some(arg),
                None => {}
            }
        } else if let Some(next) = command.find_subcommand(word).filter(|_| positionals == 0) {
            command = next;
        } else {
            positionals += 1;
        }
    }
    if let Some(arg) = pending {
        asked.value(arg, &last, "");
    } else if let Some((arg, Some(value))) = flag(command, &last).filter(|_| !flags_ended) {
        let head = &last[..last.len() - value.len()];
        asked.value(arg, value, head);
    } else if last.starts_with('-') && !flags_ended {
        asked.flags(command, &last);
    } else {
        if positionals == 0 {
            asked.commands(command, &last);
        }
        if let Some(arg) = command.get_positionals().nth(positionals) {
            asked.value(arg, &last, "");
        }
    }
    asked
}

/// The flag of a word, with its value if it is in the same word.
fn flag<'a, 'w>(command: &'a Command, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let name = name.replace('_', "-");
        return command.get_arguments().find(|arg| arg.get_long() == Some(&name)).map(|arg| (arg, value));
    }
    let mut short = word.strip_prefix('-')?.chars();
    let name = short.next()?;
    let value = Some(short.as_str()).filter(|rest| !rest.is_empty());
    let value = value.map(|value| value.strip_prefix('=').unwrap_or(value));
    command.get_arguments().find(|arg| arg.get_short() == Some(name)).map(|arg| (arg, value))
}

fn takes_next_word(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

impl CompletionAnswer {
    fn keep(&mut self, arg: &Arg, value: &str) {
        match arg.get_long() {
            Some(NAMESPACE) => self.namespace = Some(value.to_owned()),
            Some(KUBECONFIG) => self.kubeconfig = Some(value.to_owned()),
            Some("context") => self.context = Some(value.to_owned()),
            Some("as") => self.as_user = Some(value.to_owned()),
            Some("as-group") => self.as_groups.push(value.to_owned()),
            _ => {}
        }
    }

    fn commands(&mut self, command: &Command, prefix: &str) {
        let all = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name().starts_with(prefix));
        let one =
            |sub: &Command| (sub.get_name().to_owned(), sub.get_about().map(ToString::to_string).unwrap_or_default());
        self.candidates.extend(all.map(one));
    }

    fn flags(&mut self, command: &Command, prefix: &str) {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let Some(long) = arg.get_long().map(|long| format!("--{long}")) else { continue };
            if long.starts_with(prefix) {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                self.candidates.push((long, help.lines().next().unwrap_or_default().to_owned()));
            }
        }
    }

    /// Candidates for a value. `head` is the part of the word before it.
    fn value(&mut self, arg: &Arg, value: &str, head: &str) {
        let possible = arg.get_possible_values();
        if !possible.is_empty() {
            let all = possible.iter().filter(|one| !one.is_hide_set() && one.get_name().starts_with(value));
            self.candidates.extend(all.map(|one| (format!("{head}{}", one.get_name()), String::new())));
            return;
        }
        let shown = arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str()).unwrap_or_default();
        if shown == "FILE" || shown == "DIR" {
            self.takes_file = true;
        } else if head.is_empty() {
            self.names = sought(arg, shown, value);
        }
    }
}

/// The names that a value can be, by the name of the value in the help.
fn sought(arg: &Arg, shown: &str, value: &str) -> Option<NameQuery> {
    match shown {
        "OBJECT" => Some(NameQuery::Objects(value.split_once('/').map(|(kind, _)| kind.to_owned()))),
        "DEPLOYMENT" => Some(NameQuery::Of(MACHINE_DEPLOYMENTS)),
        "SET" => Some(NameQuery::Of(MACHINE_SETS)),
        "MACHINE" => Some(NameQuery::Of(MACHINES)),
        "CLASS" => Some(NameQuery::Of(MACHINE_CLASSES)),
        _ if arg.get_long() == Some(NAMESPACE) => Some(NameQuery::Namespaces),
        _ => None,
    }
}
