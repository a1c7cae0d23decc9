//! Frames of a terminal as pictures, for recordings of the demo and for the docs.

/// Colour of text in a picture.
pub(super) const TEXT: &str = "#d8dee9";

/// Lines as SVG, each with its colour.
pub(super) fn svg<'a>(lines: impl Iterator<Item = (&'a str, &'static str)>) -> String {
    let (mut texts, mut columns, mut rows) = (String::new(), 0, 0);
    for (line, colour) in lines {
        let escaped = line.replace('&', "&amp;").replace('<', "&lt;");
        let fill = if colour == TEXT { String::new() } else { format!(" fill=\"{colour}\"") };
        texts += &format!("<text x=\"12\" y=\"{}\"{fill} xml:space=\"preserve\">{escaped}</text>\n", 26 + rows * 18);
        (columns, rows) = (columns.max(line.chars().count()), rows + 1);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"monospace\" font-size=\"14\" fill=\"{TEXT}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1b2330\"/>\n{texts}</svg>\n",
        columns * 9 + 24,
        rows * 18 + 24,
    )
}

#[cfg(test)]
pub(super) mod tests {
    use std::{env, fs, path::Path};

    use super::*;

    /// A picture of the docs equals that of its test. `UPDATE_DOCS=1` rewrites it.
    pub(in crate::cli) fn published<'a>(name: &str, lines: impl Iterator<Item = (&'a str, &'static str)>) {
        let (path, picture) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/img/{name}.svg")), svg(lines));
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &picture).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(written == picture, "docs/img/{name}.svg is old: run UPDATE_DOCS=1 cargo test -p mcm --lib picture");
    }

    #[test]
    fn a_line_keeps_its_colour_and_its_signs() {
        let picture = svg([("a < b & c", TEXT), ("bad", "#bf616a")].into_iter());
        assert!(picture.contains("xml:space=\"preserve\">a &lt; b &amp; c</text>"), "{picture}");
        assert!(picture.contains("y=\"44\" fill=\"#bf616a\" xml:space=\"preserve\">bad</text>"), "{picture}");
    }
}
