//! The file that keeps the VMs: one JSON document a line, appended at each change, rewritten when most of it is history.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::record::{DepartedVm, VmRecord};

/// Lines of history that are always tolerated.
const SLACK: usize = 1024;

/// One line. Each part is an independent change; all parts of a line are applied together.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JournalEntry {
    /// Number of VMs ever made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<u64>,
    /// A VM that is new or has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmRecord>,
    /// ID of a deleted VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<String>,
    /// A VM of which a Node is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub departed: Option<DepartedVm>,
    /// ID of a deleted VM whose Node is also deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<String>,
}

/// The decoded lines of a journal.
#[derive(Debug, Default, PartialEq)]
pub(super) struct JournalContents {
    pub serial: u64,
    pub vms: BTreeMap<String, VmRecord>,
    pub departed: BTreeMap<String, DepartedVm>,
}

/// A journal that can be written.
#[derive(Debug)]
pub(super) struct VmJournal {
    path: PathBuf,
    file: File,
    lines: usize,
    /// The last line may be incomplete: nothing may follow it.
    torn: bool,
}

/// A state file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("cannot use state file {}: check that its directory exists and is writable", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It holds something else.
    #[error("line {line} of state file {} cannot be decoded: move the file away to start without VMs", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

impl VmJournal {
    /// Reads a journal, which need not exist, and makes it ready for more.
    ///
    /// # Errors
    /// When the file cannot be read, written or understood.
    pub(super) fn open(path: &Path) -> Result<(Self, JournalContents), JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        let mut contents = JournalContents::default();
        // Text after the last line end is an interrupted write, whose change was never reported.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = text.get(..whole).unwrap_or_default().split_inclusive(|byte| *byte == b'\n');
        for (index, line) in lines.enumerate() {
            let entry = serde_json::from_slice(line).map_err(|source| JournalError::Content {
                path: path.to_owned(),
                line: index + 1,
                source,
            })?;
            contents.apply(entry);
        }
        let (file, lines) = rewrite(path, &contents).map_err(io)?;
        Ok((Self { path: path.to_owned(), file, lines, torn: false }, contents))
    }

    /// Appends a change. When this returns, the change survives the process.
    pub(super) fn append(&mut self, entry: &JournalEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.lines += 1;
        self.torn = true;
        self.file.write_all(&line)?;
        self.torn = false;
        Ok(())
    }

    /// The file must be rewritten before more is appended: most of it is history, if `live` things are alive, or an
    /// append failed half-way.
    pub(super) fn is_worn(&self, live: usize) -> bool {
        self.torn || self.lines > live.saturating_mul(3).saturating_add(SLACK)
    }

    /// Puts a file with only the present in place.
    pub(super) fn compact(&mut self, contents: &JournalContents) -> io::Result<()> {
        (self.file, self.lines) = rewrite(&self.path, contents)?;
        self.torn = false;
        Ok(())
    }
}

impl JournalContents {
    fn apply(&mut self, entry: JournalEntry) {
        if let Some(serial) = entry.serial {
            self.serial = self.serial.max(serial);
        }
        if let Some(vm) = entry.vm {
            self.serial = self.serial.max(vm.serial);
            self.vms.insert(vm.id.clone(), vm);
        }
        if let Some(id) = entry.gone {
            self.vms.remove(&id);
        }
        if let Some(departed) = entry.departed {
            self.departed.insert(departed.id.clone(), departed);
        }
        if let Some(id) = entry.forgotten {
            self.departed.remove(&id);
        }
    }
}

fn rewrite(path: &Path, contents: &JournalContents) -> io::Result<(File, usize)> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let file = OpenOptions::new().create(true).write(true).truncate(true).open(&fresh)?;
    let mut writer = BufWriter::new(file);
    let mut lines = 0;
    let mut write = |entry: &JournalEntry| {
        lines += 1;
        serde_json::to_writer(&mut writer, entry)?;
        writer.write_all(b"\n")
    };
    write(&JournalEntry { serial: Some(contents.serial), ..JournalEntry::default() })?;
    for vm in contents.vms.values() {
        write(&JournalEntry { vm: Some(vm.clone()), ..JournalEntry::default() })?;
    }
    for departed in contents.departed.values() {
        write(&JournalEntry { departed: Some(departed.clone()), ..JournalEntry::default() })?;
    }
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    fs::rename(&fresh, path)?;
    Ok((file, lines))
}
