//! Content of a screen.

use std::collections::BTreeMap;

use comfy_table::{ContentArrangement, Table, presets::UTF8_BORDERS_ONLY};
use jiff::Timestamp;

/// View of the objects of a demo.
pub trait DemoView: Clone + Default + Send + 'static {
    /// All of it as a table of at most this width.
    fn frame(&self, now: Timestamp, width: u16, colours: bool) -> String;

    /// The state of each object by its name, where there is no table.
    fn states(&self) -> BTreeMap<String, String>;

    /// Why an act does not end.
    fn reasons(&self) -> Vec<String>;
}

/// A table without rows, of at most this width.
#[must_use]
pub fn table(width: u16, colours: bool) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    if colours {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

/// A text of at most so many characters.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most - 1).collect();
    short.push('…');
    short
}
