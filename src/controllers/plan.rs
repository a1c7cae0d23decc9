//! What every planner answers: ordered steps with their reasons, and what is waited for.

use jiff::Timestamp;

use crate::api::reasons::EventReason;

/// The outcome of planning: what to do now, in order, and what to wait for after that.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<A> {
    /// What to do, in order.
    pub steps: Vec<Step<A>>,
    /// What is waited for. A plan with neither steps nor waits is done.
    pub waits: Vec<Wait>,
}

/// One action and why it is right.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<A> {
    /// What to do.
    pub action: A,
    /// Why, as a person would say it; goes to the log and to `mcm plan`.
    pub reason: String,
    /// The event to emit once it is done.
    pub event: Option<Note>,
}

/// An event on the object that is reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Something is wrong; otherwise it is news.
    pub warning: bool,
    /// Reason of the event.
    pub reason: EventReason,
    /// Text of the event.
    pub message: String,
}

/// Something that has to happen elsewhere first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What, as a person would say it.
    pub on: String,
    /// When to look again even if nothing is heard of it.
    pub until: Option<Timestamp>,
}

impl<A> Default for Plan<A> {
    fn default() -> Self {
        Self { steps: Vec::new(), waits: Vec::new() }
    }
}

impl<A> Plan<A> {
    /// Adds a step.
    pub fn then(&mut self, action: A, reason: impl Into<String>) -> &mut Self {
        self.steps.push(Step { action, reason: reason.into(), event: None });
        self
    }

    /// Adds a step that is worth an event.
    pub fn then_noting(&mut self, action: A, reason: impl Into<String>, event: Note) -> &mut Self {
        self.steps.push(Step { action, reason: reason.into(), event: Some(event) });
        self
    }

    /// Adds something to wait for.
    pub fn wait(&mut self, on: impl Into<String>, until: Option<Timestamp>) -> &mut Self {
        self.waits.push(Wait { on: on.into(), until });
        self
    }

    /// When to look again; `None` if only a change can matter.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.waits.iter().filter_map(|wait| wait.until).min()
    }
}

impl Note {
    /// News.
    pub fn normal(reason: EventReason, message: impl Into<String>) -> Self {
        Self { warning: false, reason, message: message.into() }
    }

    /// Something is wrong.
    pub fn warning(reason: EventReason, message: impl Into<String>) -> Self {
        Self { warning: true, reason, message: message.into() }
    }
}

/// Random name suffixes as data: the shell gives the seed, so a plan stays a function of its input.
#[derive(Clone, Debug)]
pub struct Suffixes(u64);

impl Suffixes {
    const ALPHABET: &'static [u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

    /// The sequence for a seed.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }
}

impl Iterator for Suffixes {
    type Item = String;

    /// Five characters of the alphabet that the API server uses for generated names.
    fn next(&mut self) -> Option<String> {
        let mut text = String::with_capacity(5);
        for _ in 0..5 {
            // splitmix64
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.0;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^= bits >> 31;
            let index = usize::try_from(bits % 27).unwrap_or_default();
            text.extend(Self::ALPHABET.get(index).map(|byte| char::from(*byte)));
        }
        Some(text)
    }
}
