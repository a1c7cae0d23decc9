//! Limits on turns of phrase that make comments and docs hard to read. The ceilings are twice the rate of the worst of five
//! well-kept code bases of the field (jj, linkerd2-proxy's policy controller, omicron, karpenter, Cluster API).
//!
//! Rates of comments are per 1,000 comment lines of at least three words, rates of docs per 1,000 sentences of at least three
//! words. Code, text in backticks, headings and heads of tables do not count.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders without prose of the project.
const SKIPPED: [&str; 3] = ["target", "node_modules", "vendor"];
/// Pages beside `docs`.
const PAGES: [&str; 4] = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
/// The fewest words of a line or sentence that counts.
const FEWEST_WORDS: usize = 3;
/// The longest average sentence of a page, in words.
const LONGEST_SENTENCE: f64 = 20.0;
/// The most places that a failure lists.
const MOST_PLACES: usize = 40;

const PATTERNS: [Pattern; 7] = [
    Pattern {
        name: "begins with What, Who, Whose, Which or Those",
        position: Position::Start,
        phrases: &["what", "who", "whose", "which", "those"],
        ceiling: 1.8,
    },
    Pattern {
        name: "nobody, somebody, everybody",
        position: Position::Anywhere,
        phrases: &["nobody", "somebody", "everybody"],
        ceiling: 0.2,
    },
    Pattern {
        name: "goes, stands, comes, gone",
        position: Position::Anywhere,
        phrases: &["goes", "stands", "comes", "gone"],
        ceiling: 10.0,
    },
    Pattern {
        name: "that one, the one, those that",
        position: Position::Anywhere,
        phrases: &["that one", "the one", "those that"],
        ceiling: 4.8,
    },
    Pattern {
        name: "of its own, of their own",
        position: Position::Anywhere,
        phrases: &["of its own", "of their own"],
        ceiling: 2.4,
    },
    Pattern {
        name: "tells, says, knows, wants, forgets",
        position: Position::Anywhere,
        phrases: &["tells", "says", "knows", "wants", "forgets"],
        ceiling: 42.0,
    },
    Pattern {
        name: "\", too\" at the end of a sentence",
        position: Position::EndAfterComma,
        phrases: &["too"],
        ceiling: 0.8,
    },
];

struct Pattern {
    name: &'static str,
    position: Position,
    /// Words in lower case, separated by single spaces.
    phrases: &'static [&'static str],
    /// Occurrences per 1,000.
    ceiling: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Position {
    /// At the start of a paragraph, list item or table cell.
    Start,
    Anywhere,
    /// Before the end of a sentence, after a comma.
    EndAfterComma,
}

#[test]
fn comments_stay_below_the_limits_of_prose() {
    let files = files("rs", &|_| true);
    assert!(files.len() > 500, "only {} source files were found", files.len());
    let texts: Vec<Text> = files.iter().map(|file| Text::of_comments(file, &read(file))).collect();
    check(&texts, |text| text.lines);
}

#[test]
fn docs_stay_below_the_limits_of_prose() {
    let texts: Vec<Text> = pages().iter().map(|file| Text::of_page(file, &read(file))).collect();
    check(&texts, |text| text.sentences().count());
}

#[test]
fn sentences_of_pages_are_short() {
    for page in pages() {
        let text = Text::of_page(&page, &read(&page));
        let (sentences, words) = text.sentences().fold((0, 0), |(count, words), length| (count + 1, words + length));
        let average = words as f64 / f64::from(sentences.max(1));
        assert!(average < LONGEST_SENTENCE, "{}: {average:.1} words a sentence on average", page.display());
    }
}

#[test]
fn each_pattern_is_found_in_comments() {
    for (comment, pattern) in [
        ("/// What a machine needs.", 0),
        ("//! Those who are called on a change.", 0),
        ("// A file that nobody reads.", 1),
        ("    // The machine goes away later.", 2),
        ("/// Deletes the set,\n/// and keeps the\n/// one above.", 3),
        ("/// A client of its\n/// own for drains.", 4),
        ("// The driver says so.", 5),
        ("/// Counts pods, too.", 6),
        ("/// - first entry, too\n/// - second entry", 6),
    ] {
        let text = Text::of_comments(Path::new("a.rs"), &format!("fn a() {{}}\n{comment}\nfn b() {{}}\n"));
        let found: Vec<usize> =
            PATTERNS.iter().enumerate().flat_map(|(index, pattern)| vec![index; text.places(pattern).len()]).collect();
        assert_eq!(found, [pattern], "{comment}");
    }
}

#[test]
fn a_place_has_the_line_of_its_first_word() {
    let text = Text::of_comments(
        Path::new("a.rs"),
        "/// The first line is fine.\n/// It is a client of its\n/// own.\nmod b;\n",
    );
    assert_eq!(text.places(&PATTERNS[4]), ["a.rs:2: of its own"]);
    assert_eq!(text.lines, 2);
}

#[test]
fn code_and_quoted_text_do_not_count() {
    let source = "let text = \"// nobody goes there\";\n/// ```\n/// // nobody knows\n/// ```\n/// Prints `somebody` and returns.\n";
    let text = Text::of_comments(Path::new("a.rs"), source);
    let page = "# What it does\n\n```console\n$ who goes\n```\n\n| What | Which |\n|---|---|\n| The field `who` | [the page](what.md#goes) |\n";
    let page = Text::of_page(Path::new("a.md"), page);
    for pattern in &PATTERNS {
        assert_eq!(text.places(pattern), [""; 0]);
        assert_eq!(page.places(pattern), [""; 0]);
    }
    assert_eq!(text.lines, 1);
}

#[test]
fn sentences_of_a_page_end_at_stops_cells_and_items() {
    let page = "One two three four. Five six\nseven.\n- A short item here\n- Another short item, see v1.2 of it\n\n| H | H |\n|---|---|\n| one two three | no |\n";
    let text = Text::of_page(Path::new("a.md"), page);
    assert_eq!(text.sentences().collect::<Vec<_>>(), [4, 3, 4, 7, 3]);
}

fn check(texts: &[Text], size: impl Fn(&Text) -> usize) {
    let size: usize = texts.iter().map(size).sum();
    let mut problems = Vec::new();
    for pattern in &PATTERNS {
        let places: Vec<String> = texts.iter().flat_map(|text| text.places(pattern)).collect();
        let rate = places.len() as f64 * 1000.0 / size as f64;
        if rate > pattern.ceiling {
            problems.push(format!("{}: {rate:.1} per 1,000 of {size}, at most {}", pattern.name, pattern.ceiling));
            problems.extend(places.into_iter().take(MOST_PLACES).map(|place| format!("  {place}")));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &Path) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn pages() -> Vec<PathBuf> {
    files("md", &|file| file.starts_with("docs") || PAGES.iter().any(|page| file == Path::new(page)))
}

/// The files of the project with an extension, relative to its root.
fn files(extension: &str, is_wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                if !name.starts_with('.') && !SKIPPED.contains(&&*name) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                let file = path.strip_prefix(root()).unwrap().to_owned();
                found.extend(is_wanted(&file).then_some(file));
            }
        }
    }
    found.sort();
    found
}

/// The prose of a file.
struct Text {
    file: PathBuf,
    passages: Vec<Passage>,
    /// Lines of at least [`FEWEST_WORDS`] words.
    lines: usize,
}

/// A paragraph, a list item or a table cell.
#[derive(Default)]
struct Passage(Vec<Word>);

struct Word {
    /// As written, with punctuation.
    text: String,
    /// From 1.
    line: usize,
}

impl Text {
    /// Comments on lines of their own. Code ends a passage.
    fn of_comments(file: &Path, source: &str) -> Self {
        let mut text = Self { file: file.to_owned(), passages: Vec::new(), lines: 0 };
        let mut is_code = false;
        for (index, line) in source.lines().enumerate() {
            let line = line.trim_start();
            let comment = ["///", "//!", "//"].into_iter().find_map(|mark| line.strip_prefix(mark));
            text.add(index + 1, comment.unwrap_or_default(), &mut is_code);
        }
        text
    }

    fn of_page(file: &Path, page: &str) -> Self {
        let mut text = Self { file: file.to_owned(), passages: Vec::new(), lines: 0 };
        let mut is_code = false;
        let lines: Vec<&str> = page.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let is_table_head = lines.get(index + 1).is_some_and(|next| next.starts_with("|--"));
            text.add(index + 1, if is_table_head { "" } else { line }, &mut is_code);
        }
        text
    }

    fn add(&mut self, number: usize, line: &str, is_code: &mut bool) {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        *is_code ^= is_fence;
        if is_fence || *is_code || line.is_empty() || line.starts_with(['#', '<']) || line.starts_with("|--") {
            self.passages.push(Passage::default());
            return;
        }
        let prose = without_code(line);
        let mut count = 0;
        for (index, cell) in prose.split('|').enumerate() {
            let item = item_of(cell);
            if index > 0 || item.is_some() || self.passages.is_empty() {
                self.passages.push(Passage::default());
            }
            let words = item.unwrap_or(cell).split_whitespace().map(str::to_owned);
            let words: Vec<Word> = words.map(|text| Word { text, line: number }).collect();
            count += words.iter().filter(|word| !word.bare().is_empty()).count();
            if let Some(passage) = self.passages.last_mut() {
                passage.0.extend(words);
            }
        }
        self.lines += usize::from(count >= FEWEST_WORDS);
    }

    fn places(&self, pattern: &Pattern) -> Vec<String> {
        let places = self.passages.iter().flat_map(|passage| passage.places(pattern));
        places.map(|(line, found)| format!("{}:{line}: {found}", self.file.display())).collect()
    }

    /// The lengths of all sentences of at least [`FEWEST_WORDS`] words.
    fn sentences(&self) -> impl Iterator<Item = usize> {
        let sentences = self.passages.iter().flat_map(|passage| passage.0.split_inclusive(Word::ends_sentence));
        sentences
            .map(|words| words.iter().filter(|word| !word.bare().is_empty()).count())
            .filter(|length| *length >= FEWEST_WORDS)
    }
}

impl Passage {
    /// Lines and texts of all occurrences.
    fn places(&self, pattern: &Pattern) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for phrase in pattern.phrases {
            let phrase: Vec<&str> = phrase.split(' ').collect();
            for (start, words) in self.0.windows(phrase.len()).enumerate() {
                let is_here = match pattern.position {
                    Position::Start => start == 0,
                    Position::Anywhere => true,
                    Position::EndAfterComma => {
                        let is_last = start + 1 == self.0.len() || words[0].ends_sentence();
                        is_last && start > 0 && self.0[start - 1].text.ends_with(',')
                    }
                };
                if is_here && words.iter().zip(&phrase).all(|(word, wanted)| word.bare() == *wanted) {
                    found.push((words[0].line, phrase.join(" ")));
                }
            }
        }
        found.sort();
        found
    }
}

impl Word {
    /// In lower case, without punctuation around it.
    fn bare(&self) -> String {
        self.text.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
    }

    fn ends_sentence(&self) -> bool {
        self.text.trim_end_matches(['*', '_', ')', '"']).ends_with(['.', '!', '?', ':', ';'])
    }
}

/// The text of a list item.
fn item_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ["- ", "* ", "> "].into_iter().find_map(|mark| line.strip_prefix(mark)).or_else(|| {
        let (number, rest) = line.split_once(". ")?;
        (!number.is_empty() && number.chars().all(|c| c.is_ascii_digit())).then_some(rest)
    })
}

/// A line with `x` for text in backticks, and without the targets of links.
fn without_code(line: &str) -> String {
    let prose: Vec<&str> =
        line.split('`').enumerate().map(|(index, part)| if index % 2 == 0 { part } else { "x" }).collect();
    let prose = prose.concat();
    let mut parts = prose.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, after) = part.split_once(')').unwrap_or(("", part));
        text.push_str(after);
    }
    text.replace('[', "")
}
