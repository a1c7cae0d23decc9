//! A frame as a picture.

/// A frame as SVG.
pub fn svg(frame: &str) -> String {
    let lines = frame.lines().enumerate().map(|(row, line)| {
        let line = line.replace('&', "&amp;").replace('<', "&lt;");
        format!("<text x=\"12\" y=\"{}\" xml:space=\"preserve\">{line}</text>\n", 26 + row * 18)
    });
    let columns = frame.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    let rows = frame.lines().count();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"monospace\" font-size=\"14\" fill=\"#d8dee9\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1b2330\"/>\n{}</svg>\n",
        columns * 9 + 24,
        rows * 18 + 24,
        lines.collect::<String>()
    )
}
