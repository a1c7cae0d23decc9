//! Completion in shells: commands and flags from the command line itself, names of objects from the cluster.
//!
//! The scripts call the hidden command `mcm __complete`, as does kubectl for plugins (`kubectl_complete-mcm`). Its answer is that
//! of other plugins of kubectl: one candidate a line, with its help behind a tab, and a directive at the end.

mod names;
mod words;

use std::fmt::Write as _;

use clap_complete::Shell;

use super::args;
use mcm_runtime::kubeconfig::ContextChoice;

/// No completion with names of files.
const NO_FILES: &str = ":4";
/// Names of files, if there is no candidate.
const FILES: &str = ":0";

/// Candidates for the last of some words. Never fails: a completion that finds nothing is silent.
pub(super) async fn complete(words: &[String]) -> String {
    let asked = words::ask(&args::command(), words);
    let mut candidates = asked.candidates;
    if let Some(sought) = &asked.names {
        let place = names::CompletionScope {
            namespace: asked.namespace,
            kubeconfig: asked.kubeconfig.map(Into::into),
            choice: ContextChoice { context: asked.context, user: asked.as_user, groups: asked.as_groups },
        };
        let found = names::find(sought, place).await.into_iter();
        candidates.extend(found.filter(|name| name.starts_with(&asked.prefix)).map(|name| (name, String::new())));
    }
    let mut text = String::new();
    for (name, help) in candidates {
        let help = if help.is_empty() { help } else { format!("\t{help}") };
        let _ = writeln!(text, "{name}{help}");
    }
    text + if asked.takes_file { FILES } else { NO_FILES } + "\n"
}

/// The script of a shell.
pub(super) fn script(shell: Shell) -> String {
    match shell {
        Shell::Bash => include_str!("mcm.bash").to_owned(),
        Shell::Zsh => include_str!("mcm.zsh").to_owned(),
        Shell::Fish => include_str!("mcm.fish").to_owned(),
        // These complete commands and flags.
        other => args::completion(other),
    }
}

#[cfg(test)]
mod tests;
