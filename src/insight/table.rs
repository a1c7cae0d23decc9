//! Tables of reports: bordered and wrapped to the width of a terminal, plain columns as those of kubectl in a pipe.

use std::io::{self, IsTerminal};

use comfy_table::{
    ContentArrangement, Table,
    presets::{NOTHING, UTF8_BORDERS_ONLY},
};

/// A table for standard output.
pub fn table<R>(header: &[&str], rows: impl IntoIterator<Item = R>) -> String
where
    R: IntoIterator<Item = String>,
{
    table_for(io::stdout().is_terminal(), header, rows)
}

/// A table with a line break at its end.
pub fn table_for<R>(is_terminal: bool, header: &[&str], rows: impl IntoIterator<Item = R>) -> String
where
    R: IntoIterator<Item = String>,
{
    let mut table = Table::new();
    if is_terminal {
        table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(header);
        for row in rows {
            table.add_row(row);
        }
        return format!("{table}\n");
    }
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    table.set_header(header.iter().map(|name| name.to_uppercase()));
    for row in rows {
        // One line for each row, so that programs that read lines can be used.
        table.add_row(row.into_iter().map(|cell| cell.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    let lines = table.lines().map(|line| format!("{}\n", line.trim()));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [[String; 3]; 2] {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        [row(["ok", "", "a text\nof two lines"]), row(["failed", "spec.x", &"word ".repeat(40)])]
    }

    #[test]
    fn a_pipe_gets_one_line_for_each_row() {
        let text = table_for(false, &["result", "field", "what"], rows());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["RESULT", "FIELD", "WHAT"]);
        assert!(lines[1].starts_with("ok") && lines[1].ends_with("a text of two lines"), "{text}");
        assert_eq!(lines[0].find("WHAT"), lines[2].find("word"), "columns are aligned: {text}");
        assert!(text.is_ascii(), "{text}");
    }

    #[test]
    fn a_terminal_gets_borders() {
        assert!(table_for(true, &["result", "field", "what"], rows()).starts_with('┌'));
    }
}
