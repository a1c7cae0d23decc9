//! `mcm rollout status`: reads the caches until the rollout ends.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{interval, sleep};

use super::{lookup::find, report, seen::RolloutSnapshot};
use crate::cli::{
    document::JsonDocument,
    exit::{CommandExit, ExitError},
    flags::value,
    format::{OutputFormat, OutputOptions},
    reading::ReadingOptions,
    terminal::redraw,
};
use mcm_insight::{
    answers::ServerAnswers,
    memory,
    progress::{RolloutProgress, RolloutState},
    read_only::ReadOnly,
    reader,
    story::{NamespaceFacts, ObjectAnswer},
    terminal::TerminalLook,
};
use mcm_rules::plan::{PreviewStep, SubjectRef};

/// Time between two reads of the caches.
const LOOK: Duration = Duration::from_millis(250);
/// Reads of the caches between two reads of the Leases.
const LEASES: usize = 12;
/// Reads of the Leases between two requests of the memory of the manager.
const MEMORIES: usize = 4;

/// Options of the command.
#[derive(Args, Debug)]
pub struct RolloutStatusOptions {
    /// Name of the MachineDeployment
    #[arg(value_name = "DEPLOYMENT")]
    deployment: String,
    /// End after this time with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    timeout: Option<Duration>,
    /// End with exit code 3 if the rollout makes no progress for this time, for example because of a disruption budget
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    fail_when_blocked: Option<Duration>,
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Follows a rollout until it ends.
///
/// # Errors
/// The control cluster cannot be read, the deployment does not exist, or the rollout is blocked, failed or too slow.
pub(super) async fn run(options: RolloutStatusOptions) -> Result<()> {
    let cell = options.reading.open().await?;
    let object = find(&cell, &reader::cached(&cell, Vec::new()), &options.deployment).await?;
    let name = &object.name;
    let follow = follow(&cell, &object, &options);
    let Some(timeout) = options.timeout else { return follow.await };
    tokio::select! {
        ended = follow => ended,
        () = sleep(timeout) => Err(ExitError {
            message: format!("the rollout of {name} is not done after {timeout:?} (--timeout)"),
            hint: why(&cell, name),
            exit: CommandExit::TimedOut,
        }
        .into()),
    }
}

fn why(cell: &ReadOnly, name: &str) -> String {
    format!("mcm why {name} -n {}", cell.namespace)
}

async fn follow(cell: &ReadOnly, object: &SubjectRef, options: &RolloutStatusOptions) -> Result<()> {
    let (look, name) = (options.output.look(), &object.name);
    let (mut watch, mut screen) =
        (StallDetector::default(), RolloutScreen::new(cell.place.head(&cell.namespace), look, options.output.format));
    let mut answers = ServerAnswers::first(cell).await;
    let mut memory = memory::ask(cell, &answers.managers, None).await;
    let mut ticks = interval(LOOK);
    for tick in 1_usize.. {
        ticks.tick().await;
        if tick % LEASES == 0 {
            answers.read(cell).await;
        }
        let silent = answers.silent_since();
        if tick % (LEASES * MEMORIES) == 0 && silent.is_none() {
            memory = memory::ask(cell, &answers.managers, None).await;
        }
        let facts = NamespaceFacts { memory: memory.clone(), ..reader::cached(cell, answers.managers.clone()) };
        let Some(seen) = RolloutSnapshot::for_object(&facts, object) else {
            return Err(ExitError::no(format!("MachineDeployment {name} was deleted"), why(cell, name)).into());
        };
        let blocked = watch.look(facts.now, &seen, silent);
        screen.show(&seen, blocked, silent, facts.now)?;
        if silent.is_some() {
            continue;
        }
        match (&seen.state, blocked.zip(options.fail_when_blocked)) {
            (RolloutState::Done, _) => return Ok(()),
            (RolloutState::Unknown(reason), _) if !seen.answer.unread.is_empty() => {
                return Err(
                    ExitError::no(format!("the rollout of {name} is unknown: {reason}"), why(cell, name)).into()
                );
            }
            (RolloutState::Failed(reason), _) => {
                return Err(ExitError::no(format!("the rollout of {name} failed: {reason}"), why(cell, name)).into());
            }
            (state, Some((since, limit))) if is_longer(facts.now, since, limit) => {
                let (since, word) = (report::clock(since), report::word(state).to_lowercase());
                let reason = state.reason().unwrap_or_default();
                let message =
                    format!("the rollout of {name} is {word} since {since} (--fail-when-blocked {limit:?}): {reason}");
                return Err(ExitError::no(message, why(cell, name)).into());
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_longer(now: Timestamp, since: Timestamp, limit: Duration) -> bool {
    SignedDuration::try_from(limit).is_ok_and(|limit| now.duration_since(since) >= limit)
}

/// Finds out since when a rollout is blocked: its numbers have not changed since.
#[derive(Default)]
pub(super) struct StallDetector {
    last: Option<RolloutProgress>,
    blocked: Option<Timestamp>,
    silent: Option<Timestamp>,
}

impl StallDetector {
    /// Since when the rollout is blocked; `None` if it is not, or the API server does not answer. The time without an answer does
    /// not count: what happened meanwhile is not known.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        seen: &RolloutSnapshot,
        silent: Option<Timestamp>,
    ) -> Option<Timestamp> {
        if let Some(since) = silent {
            self.silent = Some(since);
            return None;
        }
        if let Some(since) = self.silent.take() {
            let unknown = now.duration_since(since);
            self.blocked = self.blocked.and_then(|blocked| blocked.checked_add(unknown).ok());
        }
        let has_moved = self.last.as_ref().is_some_and(|last| *last != seen.progress);
        if has_moved || !seen.state.is_held_up() {
            self.blocked = None;
        }
        if seen.state.is_held_up() {
            self.blocked.get_or_insert(now);
        }
        self.last = Some(seen.progress.clone());
        self.blocked
    }
}

/// A line of JSON.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "RolloutStatus")]
struct RolloutStatus<'a> {
    /// `Done`, `Rolling`, `Waiting`, `Unknown`, `Blocked` or `Failed`.
    state: &'static str,
    /// Why it makes no progress, or failed.
    reason: Option<&'a str>,
    /// Since when the command sees no progress.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    blocked_since: Option<Timestamp>,
    /// Since when the API server does not answer, so that the rest may be out of date.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    silent_since: Option<Timestamp>,
    progress: &'a RolloutProgress,
    /// The next steps of the controllers.
    next: &'a [PreviewStep],
    /// Machines that are not as they should be, with the reason.
    machines: &'a [ObjectAnswer],
}

impl<'a> RolloutStatus<'a> {
    fn from_snapshot(
        seen: &'a RolloutSnapshot,
        blocked_since: Option<Timestamp>,
        silent_since: Option<Timestamp>,
    ) -> Self {
        Self {
            state: report::word(&seen.state),
            reason: seen.state.reason(),
            blocked_since,
            silent_since,
            progress: &seen.progress,
            next: &seen.answer.next,
            machines: &seen.answer.machines,
        }
    }
}

/// Standard output: redrawn in place on a terminal, a line for each change elsewhere.
struct RolloutScreen {
    /// The cluster and the namespace.
    head: String,
    look: TerminalLook,
    output: OutputFormat,
    shown: String,
    lines: usize,
}

impl RolloutScreen {
    fn new(head: String, look: TerminalLook, output: OutputFormat) -> Self {
        Self { head, look, output, shown: String::new(), lines: 0 }
    }

    fn show(
        &mut self,
        seen: &RolloutSnapshot,
        blocked: Option<Timestamp>,
        silent: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<()> {
        let silence = silent.map(|since| format!("no answer since {} of the API server", report::clock(since)));
        let is_live = self.look.is_terminal && self.output == OutputFormat::Text;
        let (key, text) = match self.output {
            OutputFormat::Json => {
                let status = RolloutStatus::from_snapshot(seen, blocked, silent);
                (
                    report::without_ages(&serde_json::to_string(&status)?),
                    JsonDocument::new("RolloutStatus", now, status).line()?,
                )
            }
            OutputFormat::Text if is_live => {
                let frame = format!("{}{}", self.head, report::frame(self.look, seen, blocked, now));
                let frame = silence.map_or(frame.clone(), |silence| format!("{frame} {silence}\n"));
                (frame.clone(), frame)
            }
            OutputFormat::Text => {
                let line = silence.unwrap_or_else(|| self.look.written(&report::line(seen)));
                let head = if self.shown.is_empty() { self.head.as_str() } else { "" };
                (report::without_ages(&line), format!("{head}{} {line}\n", report::clock(now)))
            }
        };
        if key == self.shown {
            return Ok(());
        }
        let back = if is_live && self.lines > 0 { format!("\x1b[{}A\x1b[J", self.lines) } else { String::new() };
        (self.shown, self.lines) = (key, text.lines().count());
        redraw(&back, &text).map(drop)
    }
}

#[cfg(test)]
mod tests;
