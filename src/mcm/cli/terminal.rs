//! The terminal of a command: how its texts look, and writing to standard output.

use std::{
    env,
    io::{self, IsTerminal, Write as _},
};

use anyhow::{Context, Result};
use clap::Args;

use mcm_insight::terminal::{WIDTH, harmless};

pub(super) use mcm_insight::terminal::TerminalLook;

/// The most columns that are used.
const WIDEST: usize = 200;

/// Options of commands that print texts for people.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct LookOptions {
    /// Print no characters beyond ASCII; the default where the locale is not UTF-8
    #[arg(long)]
    ascii: bool,
}

impl LookOptions {
    /// The look for standard output.
    pub(super) fn stdout(self) -> TerminalLook {
        let is_terminal = io::stdout().is_terminal();
        let width = if is_terminal { usize::from(comfy_table::Table::new().width().unwrap_or_default()) } else { 0 };
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        TerminalLook {
            width: if width == 0 { WIDTH } else { width.clamp(WIDTH, WIDEST) },
            colours: is_terminal && !no_color,
            unicode: !self.ascii && locale_is_utf8(),
            is_terminal,
        }
    }
}

/// The locale of characters, as the C library chooses it. Without any, a terminal of today is UTF-8.
fn locale_is_utf8() -> bool {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_none_or(|locale| locale.to_lowercase().replace('-', "").contains("utf8"))
}

/// Writes to standard output. False if nothing reads it any more, which is not an error.
pub(super) fn print(text: &str) -> Result<bool> {
    redraw("", text)
}

/// Writes to standard output after moving the cursor. False if nothing reads it any more, which is not an error.
pub(super) fn redraw(moves: &str, text: &str) -> Result<bool> {
    let text = format!("{moves}{}", harmless(text));
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("write to standard output"),
    }
}
