//! Files with credentials that Secrets name.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::{code::Code, error::DriverError};

/// Tokens have a few KiB.
const LARGEST: u64 = 64 * 1024;

/// Reads a small regular file below one of the folders, as text without surrounding white space. Projected volumes consist of
/// symbolic links, so the folder holds for the file that a path leads to.
///
/// # Errors
/// [`Code::Unauthenticated`]: the file cannot be read, is empty, or is not a small regular file below a folder.
pub async fn read_credential_file(path: &Path, folders: &[PathBuf]) -> Result<String, DriverError> {
    let (path, folders) = (path.to_owned(), folders.to_owned());
    let shown = path.display().to_string();
    let read = tokio::task::spawn_blocking(move || read(&path, &folders)).await;
    read.map_err(io::Error::other).flatten().map_err(|error| {
        DriverError::new(Code::Unauthenticated, format!("the token file {shown} cannot be read: {error}"))
    })
}

fn read(path: &Path, folders: &[PathBuf]) -> io::Result<String> {
    let file = path.canonicalize()?;
    let mut folders = folders.iter().filter_map(|folder| folder.canonicalize().ok());
    if !folders.any(|folder| file.starts_with(folder)) {
        return Err(io::Error::other("it is a link to a file elsewhere"));
    }
    // Opening a pipe would wait for its writer.
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    File::open(file)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it has more than {LARGEST} bytes")));
    }
    match text.trim() {
        "" => Err(io::Error::other("it is empty")),
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::{fs, os::unix::fs::symlink, time::Duration};
    use tempfile::{TempDir, tempdir};
    use tokio::time::timeout;

    /// A folder as the kubelet fills it: the file is a link into a folder that is a link.
    fn projected() -> (TempDir, PathBuf) {
        let folder = tempdir().unwrap();
        fs::create_dir(folder.path().join("..2026")).unwrap();
        fs::write(folder.path().join("..2026/token"), " abc\n").unwrap();
        symlink("..2026", folder.path().join("..data")).unwrap();
        symlink("..data/token", folder.path().join("token")).unwrap();
        let path = folder.path().join("token");
        (folder, path)
    }

    /// A file that cannot be read ends at once.
    async fn error_of(path: &Path, folder: &Path) -> String {
        let read = timeout(Duration::from_secs(30), read_credential_file(path, &[folder.to_owned()])).await;
        let error = read.expect("reading ends").unwrap_err();
        assert_eq!(error.code, Code::Unauthenticated);
        error.message
    }

    #[tokio::test]
    async fn a_token_of_a_projected_volume_is_read() {
        let (folder, path) = projected();
        assert_eq!(read_credential_file(&path, &[folder.path().to_owned()]).await.unwrap(), "abc");
    }

    #[rstest]
    #[case::device("/dev/zero")]
    #[case::other_file("/etc/hostname")]
    #[tokio::test]
    async fn a_link_that_leaves_the_folder_is_not_followed(#[case] target: &str) {
        let (folder, _) = projected();
        let link = folder.path().join("link");
        symlink(target, &link).unwrap();
        assert!(error_of(&link, folder.path()).await.ends_with("it is a link to a file elsewhere"));
    }

    #[tokio::test]
    async fn a_device_is_not_read() {
        assert!(error_of(Path::new("/dev/zero"), Path::new("/dev")).await.ends_with("it is not a regular file"));
    }

    #[tokio::test]
    async fn a_pipe_is_not_opened() {
        let (folder, _) = projected();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(error_of(&pipe, folder.path()).await.ends_with("it is not a regular file"));
    }

    #[rstest]
    #[case(64 * 1024, true)]
    #[case(64 * 1024 + 1, false)]
    #[tokio::test]
    async fn a_large_file_is_not_read(#[case] size: usize, #[case] is_read: bool) {
        let (folder, path) = projected();
        fs::write(&path, "x".repeat(size)).unwrap();
        assert_eq!(read_credential_file(&path, &[folder.path().to_owned()]).await.is_ok(), is_read);
    }

    #[rstest]
    #[case::nothing("")]
    #[case::blank(" \n")]
    #[case::lines("\r\n\t\n")]
    #[tokio::test]
    async fn an_empty_token_is_not_sent(#[case] text: &str) {
        let (folder, path) = projected();
        fs::write(&path, text).unwrap();
        assert!(error_of(&path, folder.path()).await.ends_with("cannot be read: it is empty"));
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_named() {
        let (folder, _) = projected();
        let path = folder.path().join("nothing");
        assert!(error_of(&path, folder.path()).await.contains("nothing cannot be read: No such file"));
    }
}
