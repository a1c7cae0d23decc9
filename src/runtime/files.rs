//! Files that the configuration names: regular files, read up to a limit. A device or a file that grows without end must
//! not take the memory of the process.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// Most bytes of a token. Tokens of API servers have some KiB, and a request header has room for little more.
pub(crate) const TOKEN: u64 = 64 << 10;
/// Most bytes of a file with certificates or keys.
pub const PEM: u64 = 4 << 20;
/// Most bytes of a kubeconfig, or of a file of cells.
pub const CONFIG: u64 = 16 << 20;

/// Reads a file.
///
/// # Errors
/// It is not a regular file, has more than `most` bytes, or cannot be read.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    check(path, most)?;
    let mut bytes = Vec::new();
    // It may have grown since.
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large(most)) } else { Ok(bytes) }
}

/// Reads a file with text.
///
/// # Errors
/// As for [`read`], or it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Checks a file that another library reads.
///
/// # Errors
/// It is not a regular file, has more than `most` bytes, or its metadata cannot be read.
pub(crate) fn check(path: &Path, most: u64) -> io::Result<()> {
    // Before it is opened: opening a pipe waits for its other end.
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if metadata.len() > most { Err(too_large(most)) } else { Ok(()) }
}

fn too_large(most: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {} KiB", most >> 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read_and_only_up_to_the_limit() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "x".repeat(2048)).unwrap();
        assert_eq!(read_text(&path, 2048).unwrap().len(), 2048);
        assert_eq!(read(&path, 2047).unwrap_err().to_string(), "it has more than 1 KiB");
        // Sparse: it takes no space on the disk.
        File::create(&path).unwrap().set_len(10 << 30).unwrap();
        assert_eq!(read(&path, TOKEN).unwrap_err().to_string(), "it has more than 64 KiB");
        for special in ["/dev/zero", "/dev"] {
            assert_eq!(read(Path::new(special), TOKEN).unwrap_err().to_string(), "it is not a regular file");
        }
        assert_eq!(read(&folder.path().join("none"), TOKEN).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
