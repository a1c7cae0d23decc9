//! Texts for people: the width and colours of the terminal, marks, and paragraphs with labels. Pure.

use std::{borrow::Cow, fmt::Write as _};

use jiff::{SignedDuration, Timestamp};

use mcm_api::syntax::is_deceptive;

/// Columns of a pipe, and of the narrowest terminal that is served.
pub const WIDTH: usize = 80;
/// Longest text of an error.
const LONGEST: usize = 300;

/// The colour and weight of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalLook {
    /// Columns.
    pub width: usize,
    /// Colours are used. They repeat the meaning of a word or a mark beside them.
    pub colours: bool,
    /// Characters beyond ASCII are used.
    pub unicode: bool,
    /// A person reads the output, not a program.
    pub is_terminal: bool,
}

/// A state at a glance. A word is always beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMark {
    /// As it should be.
    Good,
    /// Under way.
    Busy,
    /// Something to look at.
    Look,
    /// Blocked or failed.
    Bad,
    /// Refused, or not known.
    Refused,
}

impl TerminalLook {
    /// Plain text of 80 columns, for tests and files.
    pub const PLAIN: Self = Self { width: WIDTH, colours: false, unicode: true, is_terminal: false };

    /// A mark with its colour.
    pub fn mark(self, mark: StatusMark) -> String {
        let (sign, plain, colour) = match mark {
            StatusMark::Good => ("✔", "+", "32"),
            StatusMark::Busy => ("◌", "~", "34"),
            StatusMark::Look => ("!", "!", "33"),
            StatusMark::Bad => ("✖", "x", "31"),
            StatusMark::Refused => ("⊘", "0", "31"),
        };
        self.coloured(if self.unicode { sign } else { plain }, colour)
    }

    pub fn bold(self, text: &str) -> String {
        self.coloured(text, "1")
    }

    /// A text with a colour of ANSI terminals, such as `31` for red.
    pub fn coloured(self, text: &str, colour: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A text with the characters that this look may use. Each is replaced by one of the same width.
    pub fn written(self, text: &str) -> String {
        if self.unicode {
            return text.to_owned();
        }
        let plain = |sign| match sign {
            '…' => '.',
            '├' | '│' => '|',
            '─' | '−' => '-',
            '└' => '`',
            '█' | '▓' => '#',
            '░' => '.',
            '▒' => '~',
            '→' | '▸' => '>',
            '↑' => '^',
            '↓' => 'v',
            '×' => 'x',
            other => other,
        };
        text.chars().map(plain).collect()
    }

    /// A label and its text in one line, however long.
    pub fn line(self, text: &mut String, label: &str, content: &str) {
        let _ = writeln!(text, "  {label:<width$}{content}", width = INDENT - 2);
    }

    /// A label, a mark and a text, wrapped.
    pub fn marked(self, text: &mut String, label: &str, mark: &str, content: &str) {
        let (mut label, mut mark) = (label, mark);
        for line in wrapped(content, self.width - INDENT - 2) {
            self.line(text, label, &format!("{mark} {line}"));
            (label, mark) = ("", " ");
        }
    }

    /// A label and its text, wrapped. Texts begin in one column.
    pub fn section(self, text: &mut String, label: &str, content: &str) {
        let mut label = label;
        for line in wrapped(content, self.width - INDENT) {
            self.line(text, label, &line);
            label = "";
        }
    }
}

/// Columns at the end of a name that are kept.
const TAIL: usize = 7;
/// Column in which the texts of sections begin.
const INDENT: usize = 13;

/// The beginning of a text that has at most `width` columns.
pub fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some(_) if width == 0 => String::new(),
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// A text of at most `width` columns that keeps its end, by which machines differ.
pub fn cut_inside(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width || width <= TAIL {
        return cut(text, width);
    }
    let head = cut(text, width - TAIL);
    format!("{head}{}", text.chars().skip(length - TAIL).collect::<String>())
}

/// Lines of at most `width` columns. A longer word has a line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The time since `then` in at most two units, such as `4m3s` or `2d5h`.
pub fn ago(now: Timestamp, then: Timestamp) -> String {
    span(now.duration_since(then))
}

/// A duration in at most two units.
pub fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let Some(first) = units.iter().position(|(length, _)| seconds >= *length) else { return "0s".to_owned() };
    let mut left = seconds;
    let mut text = String::new();
    for (length, unit) in units.iter().skip(first).take(2) {
        let count = left / length;
        left %= length;
        if count > 0 {
            let _ = write!(text, "{count}{unit}");
        }
    }
    text
}

/// The beginning of a long text, such as that of an error.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// The sequences of [`Look::coloured`].
const COLOURS: [&str; 6] = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m"];

/// A text in which control characters and marks of the direction of writing are written as in JSON: texts of objects must not move
/// the cursor, hide lines or change the title of a terminal. Ends of lines, tabs and our own colours stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_control = |one: char| is_deceptive(one) && one != '\n' && one != '\t';
    let (mut safe, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(is_control) {
        let (before, control) = rest.split_at(at);
        safe.push_str(before);
        let mut chars = control.chars();
        rest = match (COLOURS.iter().find_map(|colour| Some((colour, control.strip_prefix(colour)?))), chars.next()) {
            (Some((colour, after)), _) => {
                safe.push_str(colour);
                after
            }
            (None, first) => {
                safe.extend(first.map(|one| format!("\\u{:04x}", u32::from(one))));
                chars.as_str()
            }
        };
    }
    if safe.is_empty() {
        return Cow::Borrowed(text);
    }
    safe.push_str(rest);
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_objects_do_not_control_the_terminal() {
        let look = TerminalLook { colours: true, ..TerminalLook::PLAIN };
        let own = format!("{} {}\tis\n", look.mark(StatusMark::Bad), look.bold("pool"));
        assert_eq!(harmless(&own), own);
        let injected = format!("{own}\x1b[2J\x1b]0;title\x07\rfine\u{9b}8m");
        assert_eq!(harmless(&injected), format!(r"{own}\u001b[2J\u001b]0;title\u0007\u000dfine\u009b8m"));
        assert_eq!(harmless("\x1b[8m"), r"\u001b[8m");
        assert_eq!(harmless("pool\u{202e}deifirev\u{2066}"), r"pool\u202edeifirev\u2066", "nothing is reordered");
    }

    #[test]
    fn sections_are_wrapped_and_indented() {
        let mut text = String::new();
        TerminalLook::PLAIN.section(&mut text, "because", &"word ".repeat(20));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("  because    word") && lines[1].starts_with("             word"), "{text}");
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{text}");
    }

    #[test]
    fn marks_need_neither_colours_nor_unicode() {
        assert_eq!(TerminalLook::PLAIN.mark(StatusMark::Bad), "✖");
        assert_eq!(TerminalLook { unicode: false, ..TerminalLook::PLAIN }.mark(StatusMark::Bad), "x");
        assert_eq!(TerminalLook { colours: true, ..TerminalLook::PLAIN }.mark(StatusMark::Good), "\x1b[32m✔\x1b[0m");
    }
}
