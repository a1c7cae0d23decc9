//! Limits on turns of phrase that make comments and docs hard to read.
//!
//! Comments are counted in each room, because an average hides a room with many turns: a room is a crate, a cloud of
//! `src/drivers`, a folder of `src/mcm`, or a folder beside `src`. The ceilings are rates of the worst of the well-kept code bases
//! of the field (jj, linkerd2-proxy's policy controller, omicron, karpenter, Cluster API), or twice that where a turn is rare.
//! Docs are counted as a whole, and their ceilings are twice the worst rate.
//!
//! Rates of comments are per 1,000 comment lines of at least three words, rates of docs per 1,000 sentences of at least three
//! words. Code, text in backticks, headings and heads of tables do not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::PRODUCT;

/// Folders without prose of the project.
const SKIPPED: [&str; 3] = ["target", "node_modules", "vendor"];
/// Pages beside `docs`.
const PAGES: [&str; 4] = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
/// The fewest words of a line or sentence that counts.
const FEWEST_WORDS: usize = 3;
/// The fewest lines of a room that has ceilings.
const FEWEST_LINES: usize = 100;
/// The occurrences that a room may have in any case.
const ALWAYS_ALLOWED: usize = 1;
/// The longest average sentence of a page, in words.
const LONGEST_SENTENCE: f64 = 20.0;
/// The most places that a failure lists.
const MOST_PLACES: usize = 40;

const PATTERNS: [Pattern; 10] = [
    Pattern {
        name: "what",
        position: Position::Start,
        phrases: &["what", "who", "whose", "which", "those"],
        in_comments: 1.3,
        in_docs: Some(1.8),
    },
    Pattern {
        name: "nobody",
        position: Position::Anywhere,
        phrases: &["nobody", "somebody", "everybody"],
        in_comments: 0.2,
        in_docs: Some(0.2),
    },
    Pattern {
        name: "goes",
        position: Position::Anywhere,
        phrases: &["goes", "stands", "comes", "gone"],
        in_comments: 6.5,
        in_docs: Some(10.0),
    },
    Pattern {
        name: "the one",
        position: Position::Anywhere,
        phrases: &["that one", "the one", "those that"],
        in_comments: 3.5,
        in_docs: Some(4.8),
    },
    Pattern {
        name: "of its own",
        position: Position::Anywhere,
        phrases: &["of its own", "of their own"],
        in_comments: 2.4,
        in_docs: Some(2.4),
    },
    Pattern {
        name: "says",
        position: Position::Anywhere,
        phrases: &["tells", "says", "asks", "learns", "knows", "wants", "forgets"],
        in_comments: 4.0,
        in_docs: Some(42.0),
    },
    Pattern { name: "too", position: Position::EndAfterComma, phrases: &["too"], in_comments: 0.8, in_docs: Some(0.8) },
    Pattern { name: "whether", position: Position::Start, phrases: &["whether"], in_comments: 3.8, in_docs: None },
    Pattern {
        name: "is none",
        position: Position::Anywhere,
        phrases: &["is none", "has none"],
        in_comments: 2.0,
        in_docs: None,
    },
    Pattern {
        name: "sees",
        position: Position::Anywhere,
        phrases: &["sees", "looks", "judges", "answers"],
        in_comments: 4.7,
        in_docs: None,
    },
];

/// The occurrences of patterns in rooms that are above a ceiling. The numbers only fall: lower one in the commit that rewords a
/// comment.
const EXCEPTIONS: [(&str, &[(&str, usize)]); 0] = [];

struct Pattern {
    /// One of the phrases.
    name: &'static str,
    position: Position,
    /// Words in lower case, separated by single spaces.
    phrases: &'static [&'static str],
    /// Occurrences per 1,000 lines of a room.
    in_comments: f64,
    /// Occurrences per 1,000 sentences of all pages; `None` for any number.
    in_docs: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Position {
    /// At the start of a paragraph, list item or table cell.
    Start,
    Anywhere,
    /// Before the end of a sentence, after a comma.
    EndAfterComma,
}

/// The places of each pattern that is above its ceiling in a room, by room and name of the pattern.
type Excesses = BTreeMap<String, BTreeMap<&'static str, Vec<String>>>;

#[test]
fn comments_of_each_room_stay_below_the_limits_of_prose() {
    let files = files("rs", &|_| true);
    assert!(files.len() > 500, "only {} source files were found", files.len());
    let texts: Vec<Text> = files.iter().map(|file| Text::of_comments(file, &read(file))).collect();
    let problems = differences(&excesses_in(&texts), &EXCEPTIONS);
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn each_room_is_counted_alone() {
    let plain = "/// Counts the machines.\nfn a() {}\n";
    let turns = "/// Whether it runs now.\nfn b() {}\n";
    let text = |file: &str, plains: usize, faults: usize| {
        Text::of_comments(Path::new(file), &(plain.repeat(plains) + &turns.repeat(faults)))
    };
    let texts = [
        text("src/drivers/one/lib.rs", 98, 1),
        text("src/drivers/one/tests/a.rs", 0, 1),
        text("src/drivers/two/lib.rs", 5_000, 0),
        text("src/mcm/cli/mod.rs", 97, 2),
        text("src/mcm/process/mod.rs", 1_000, 3),
        text("src/mcm/main.rs", 1_000, 0),
        text("tests/a.rs", 597, 3),
    ];
    let found = excesses_in(&texts);
    let places = ["src/drivers/one/lib.rs:197: whether", "src/drivers/one/tests/a.rs:1: whether"];
    assert_eq!(found["drivers/one"]["whether"], places);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["drivers/one", "tests"]);
    assert_eq!(found["tests"]["whether"].len(), 3);
}

#[test]
fn an_exception_has_the_exact_number() {
    let turns = "/// Whether it runs now.\nfn b() {}\n";
    let found = excesses_in(&[Text::of_comments(Path::new("src/api/a.rs"), &turns.repeat(100))]);
    assert_eq!(differences(&found, &[("api", &[("whether", 100)])]), [""; 0]);
    assert_eq!(differences(&found, &[("api", &[("whether", 101)])]), [r#"("api", &[("whether", 100)]),"#]);
    let more = differences(&found, &[("api", &[("whether", 99)])]);
    assert_eq!(more.len(), 1 + MOST_PLACES);
    assert_eq!(more[..2], [r#"("api", &[("whether", 100)]),"#, "  src/api/a.rs:1: whether"]);
    let none = excesses_in(&[]);
    assert_eq!(differences(&none, &[("api", &[("whether", 100)])]), [r#"("api", &[]),"#]);
}

#[test]
fn docs_stay_below_the_limits_of_prose() {
    let texts: Vec<Text> = pages().iter().map(|file| Text::of_page(file, &read(file))).collect();
    let size: usize = texts.iter().map(|text| text.sentences().count()).sum();
    let mut problems = Vec::new();
    for pattern in &PATTERNS {
        let Some(ceiling) = pattern.in_docs else { continue };
        let places: Vec<String> = texts.iter().flat_map(|text| text.places(pattern)).collect();
        let rate = places.len() as f64 * 1000.0 / size as f64;
        if rate > ceiling {
            problems.push(format!("{}: {rate:.1} per 1,000 of {size}, at most {ceiling}", pattern.name));
            problems.extend(places.into_iter().take(MOST_PLACES).map(|place| format!("  {place}")));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
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
        ("// A driver that learns of pods.", 5),
        ("/// Whether it runs.", 7),
        ("/// Its Lease; `None` if there\n/// is none.", 8),
        ("// The set looks for Nodes.", 9),
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

fn excesses_in(texts: &[Text]) -> Excesses {
    let mut rooms = BTreeMap::<String, Vec<&Text>>::new();
    for text in texts {
        rooms.entry(room_of(&text.file)).or_default().push(text);
    }
    let mut excesses = Excesses::new();
    for (room, texts) in rooms {
        let lines: usize = texts.iter().map(|text| text.lines).sum();
        if lines < FEWEST_LINES {
            continue;
        }
        for pattern in &PATTERNS {
            let places: Vec<String> = texts.iter().flat_map(|text| text.places(pattern)).collect();
            let allowed = (pattern.in_comments * lines as f64 / 1000.0).max(ALWAYS_ALLOWED as f64);
            if places.len() as f64 > allowed {
                excesses.entry(room.clone()).or_default().insert(pattern.name, places);
            }
        }
    }
    excesses
}

/// The exceptions that differ from the found numbers, as they have to be, with the places of patterns above them.
fn differences(found: &Excesses, exceptions: &[(&str, &[(&str, usize)])]) -> Vec<String> {
    let limits: BTreeMap<&str, BTreeMap<&str, usize>> =
        exceptions.iter().map(|(room, limits)| (*room, limits.iter().copied().collect())).collect();
    let rooms: BTreeSet<&str> = found.keys().map(String::as_str).chain(limits.keys().copied()).collect();
    let mut differences = Vec::new();
    for room in rooms {
        let found = found.get(room).into_iter().flatten();
        let limits = limits.get(room).cloned().unwrap_or_default();
        let counts: BTreeMap<&str, usize> = found.clone().map(|(name, places)| (*name, places.len())).collect();
        if counts == limits {
            continue;
        }
        differences.push(format!("(\"{room}\", &{:?}),", counts.iter().collect::<Vec<_>>()));
        let above = found.filter(|(name, places)| places.len() > limits.get(*name).copied().unwrap_or_default());
        let places = above.flat_map(|(_, places)| places.iter().take(MOST_PLACES));
        differences.extend(places.map(|place| format!("  {place}")));
    }
    differences
}

/// A crate, a cloud of `src/drivers`, a folder of `src/mcm`, or a folder beside `src`.
fn room_of(file: &Path) -> String {
    let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    match parts[..] {
        ["src", "drivers", cloud, ..] => format!("drivers/{cloud}"),
        ["src", PRODUCT, folder, _, ..] => format!("{PRODUCT}/{folder}"),
        ["src", room, ..] | [room, ..] => room.to_owned(),
        [] => String::new(),
    }
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
