//! Errors of the command line: one line with the error, one with a hint.

use std::{collections::BTreeSet, error::Error as _, process::ExitCode};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{
    convert::ConvertError,
    exit::{CommandExit, ExitError, NegativeAnswer},
    flags::{
        FlagConflicts,
        value::{InvalidValue, InvalidValueKind},
    },
};
use mcm_insight::{
    error::{UnreadError, UsageError, error_line},
    reader::is_forbidden,
    terminal::harmless,
};
use mcm_rules::plan::{counted, shell::CallFlags};
use mcm_runtime::kubeconfig::StartError;

const FAILED: u8 = CommandExit::Failed as u8;
const USAGE: u8 = CommandExit::Usage as u8;

/// A command line that runs no command.
#[derive(Debug)]
pub enum CommandRejection {
    /// Help or version was requested.
    Answer(clap::Error),
    /// It cannot be understood.
    Usage {
        /// The error.
        message: String,
        /// The hint.
        hint: String,
        /// Exit code of the process.
        code: u8,
    },
}

/// One invocation, for texts that quote it.
pub struct CommandInvocation<'a> {
    /// The name of the command, as the user types it.
    pub command: String,
    /// The program has the name of one of the Go programs and uses their exit codes.
    pub is_go_name: bool,
    /// Its arguments.
    pub args: &'a [std::ffi::OsString],
    /// The long names of its flags.
    pub flags: Vec<String>,
    /// The Go program that has a flag of this name.
    pub program_with_flag: fn(&str) -> Option<&'static str>,
    /// How it is called, from its help.
    pub example: Option<String>,
}

impl CommandRejection {
    pub(super) fn from_clap(error: clap::Error, spoken: &CommandInvocation<'_>) -> Self {
        match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Self::Answer(error),
            ErrorKind::UnknownArgument => unknown_argument(&error, spoken),
            ErrorKind::InvalidSubcommand => unknown_command(&error, spoken),
            ErrorKind::InvalidValue | ErrorKind::ValueValidation => bad_value(&error, spoken),
            ErrorKind::MissingRequiredArgument => missing_arguments(&error, spoken),
            ErrorKind::ArgumentConflict => conflicting_arguments(&error, spoken),
            _ => usage(first_line(&error), None, spoken),
        }
    }

    pub(super) fn from_conflicts(conflicts: &FlagConflicts, spoken: &CommandInvocation<'_>) -> Self {
        let code = if spoken.is_go_name { FAILED } else { USAGE };
        Self::Usage { message: conflicts.to_string(), hint: see_help(spoken), code }
    }

    /// Prints it and returns the exit code.
    pub(super) fn report(&self) -> ExitCode {
        match self {
            Self::Answer(error) => {
                // A closed pipe is not an error.
                error.print().ok();
                u8::try_from(error.exit_code()).map_or(ExitCode::from(USAGE), ExitCode::from)
            }
            Self::Usage { message, hint, code } => {
                print(message, Some(hint));
                ExitCode::from(*code)
            }
        }
    }
}

/// Prints the error of a command and returns the exit code. Commands in its hint get the flags of the call.
pub fn report(error: &anyhow::Error, call: &CallFlags) -> ExitCode {
    let addressed = |hint: &str| call.addressed(hint, hint.contains("target cluster"));
    if let Some(ConvertError::Refused(refusals)) = error.downcast_ref() {
        refusals.iter().for_each(|refusal| print(&refusal.to_string(), None));
        let objects: BTreeSet<&str> = refusals.iter().map(|refusal| refusal.object.as_str()).collect();
        let (problems, objects) = (counted(refusals.len(), "problem"), counted(objects.len(), "object"));
        print(&format!("{problems} in {objects}: nothing was printed"), None);
        return ExitCode::from(FAILED);
    }
    if let Some(misuse) = error.downcast_ref::<UsageError>() {
        print(&misuse.message, Some(&addressed(&misuse.hint)));
        return ExitCode::from(USAGE);
    }
    if let Some(unread) = error.downcast_ref::<UnreadError>() {
        print(&unread.message, Some(&addressed(&unread.hint)));
        return CommandExit::No.into();
    }
    if let Some(ended) = error.downcast_ref::<ExitError>() {
        print(&ended.message, Some(&addressed(&ended.hint)));
        return ended.exit.into();
    }
    if let Some(NegativeAnswer(answer)) = error.downcast_ref() {
        print(answer, None);
        return CommandExit::No.into();
    }
    let hint = error.chain().find_map(|layer| layer.downcast_ref::<StartError>()).map(StartError::hint);
    print(&error_line(error), hint.or_else(|| rights_hint(error)));
    ExitCode::from(FAILED)
}

/// The role to ask for, if the user may not list a kind that a command reads.
pub(super) fn rights_hint(error: &anyhow::Error) -> Option<&'static str> {
    let is_list = is_forbidden(error) && error.to_string().starts_with("list ");
    is_list.then_some(
        "ask for the ClusterRole mcm-view (config/rbac/view.yaml), which has the rights of commands that read",
    )
}

#[expect(clippy::print_stderr, reason = "this is the one place that talks to the user of the command line")]
fn print(message: &str, hint: Option<&str>) {
    eprintln!("error: {}", harmless(&one_line(message)));
    if let Some(hint) = hint {
        eprintln!("hint: {}", harmless(&one_line(hint)));
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn usage(message: String, hint: Option<String>, spoken: &CommandInvocation<'_>) -> CommandRejection {
    CommandRejection::Usage { message, hint: hint.unwrap_or_else(|| see_help(spoken)), code: USAGE }
}

fn see_help(spoken: &CommandInvocation<'_>) -> String {
    format!("see {} --help", spoken.command)
}

/// The example in the help of the command, else where to look.
fn example_or_help(spoken: &CommandInvocation<'_>) -> String {
    spoken.example.clone().unwrap_or_else(|| see_help(spoken))
}

fn missing_arguments(error: &clap::Error, spoken: &CommandInvocation<'_>) -> CommandRejection {
    let missing = texts_of(error, ContextKind::InvalidArg).into_iter().map(|arg| plain(&arg)).collect::<Vec<_>>();
    usage(format!("{} needs {}", spoken.command, missing.join(" and ")), Some(example_or_help(spoken)), spoken)
}

fn conflicting_arguments(error: &clap::Error, spoken: &CommandInvocation<'_>) -> CommandRejection {
    let given = texts_of(error, ContextKind::InvalidArg).join(", ");
    let others = texts_of(error, ContextKind::PriorArg).iter().map(|arg| plain(arg)).collect::<Vec<_>>().join(", ");
    let message = format!("{} takes {} or {others}, not both", spoken.command, plain(&given));
    usage(message, Some(example_or_help(spoken)), spoken)
}

/// An argument as it is typed, without the brackets of a usage line.
fn plain(argument: &str) -> String {
    argument.replace(['<', '>', '[', ']'], "").replace('|', " or ")
}

fn unknown_argument(error: &clap::Error, spoken: &CommandInvocation<'_>) -> CommandRejection {
    let given = text_of(error, ContextKind::InvalidArg).unwrap_or_default();
    if !given.starts_with('-') {
        let hint = guess::boolean_after(&given, spoken);
        return usage(format!("unexpected argument {given:?}"), hint, spoken);
    }
    if let Some((word, name)) = guess::single_dashed(&given, spoken) {
        return usage(
            format!("unknown flag {given} in {word}"),
            Some(format!("long flags take two dashes: --{name}")),
            spoken,
        );
    }
    let suggestion = match given.trim_start_matches('-').split('=').next().and_then(spoken.program_with_flag) {
        Some(other) if spoken.is_go_name => Some(format!("{other} has this flag")),
        _ => text_of(error, ContextKind::SuggestedArg).map(|flag| format!("did you mean {flag}?")),
    };
    usage(format!("unknown flag {given}"), suggestion, spoken)
}

fn unknown_command(error: &clap::Error, spoken: &CommandInvocation<'_>) -> CommandRejection {
    let given = text_of(error, ContextKind::InvalidSubcommand).unwrap_or_default();
    let suggestion = text_of(error, ContextKind::SuggestedSubcommand).map(|name| format!("did you mean {name}?"));
    usage(format!("unknown command {given:?}"), suggestion, spoken)
}

fn bad_value(error: &clap::Error, spoken: &CommandInvocation<'_>) -> CommandRejection {
    let flag = text_of(error, ContextKind::InvalidArg).unwrap_or_default();
    let flag = flag.split([' ', '[', '=']).next().unwrap_or_default();
    let given = text_of(error, ContextKind::InvalidValue).unwrap_or_default();
    let invalid = error.source().and_then(|source| source.downcast_ref::<InvalidValue>());
    if let Some(invalid) = invalid {
        let is_range = invalid.class() == InvalidValueKind::Range;
        return CommandRejection::Usage {
            message: format!("{flag}={given}: {invalid}"),
            hint: invalid.hint().map_or_else(|| see_help(spoken), str::to_owned),
            code: if is_range && spoken.is_go_name { FAILED } else { USAGE },
        };
    }
    let message = match text_of(error, ContextKind::ValidValue) {
        _ if given.is_empty() => format!("{flag} needs a value"),
        Some(allowed) => format!("{flag}={given}: must be one of {allowed}"),
        None => format!("{flag}={given}: not allowed"),
    };
    usage(message, None, spoken)
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    let texts = texts_of(error, kind);
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn texts_of(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Hints for common mistakes.
mod guess {
    use super::CommandInvocation;
    use crate::cli::flags::value::boolean;

    /// `--leader-elect false` is parsed as a flag and an extra argument.
    pub fn boolean_after(given: &str, spoken: &CommandInvocation<'_>) -> Option<String> {
        boolean(given).ok()?;
        let position = spoken.args.iter().position(|arg| arg == given)?;
        let flag = spoken.args.get(position.checked_sub(1)?)?.to_str().filter(|word| word.starts_with("--"))?;
        Some(format!("a boolean flag takes its value after \"=\": {flag}={given}"))
    }

    /// `-port=1` is parsed as several short flags. Returns the whole argument and the name of the flag in it.
    pub fn single_dashed<'a>(given: &str, spoken: &'a CommandInvocation<'_>) -> Option<(&'a str, &'a str)> {
        spoken.args.iter().filter_map(|arg| arg.to_str()).find_map(|word| {
            let name = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?.split('=').next()?;
            let is_known = word.starts_with(given) && spoken.flags.iter().any(|flag| flag == name);
            is_known.then_some((word, name))
        })
    }
}
