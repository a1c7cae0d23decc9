//! User data within the limit of a cloud.

use std::{borrow::Cow, io::Write};

use flate2::{Compression, GzBuilder};

use crate::{code::Code, error::DriverError};

/// Beginnings of user data for cloud-init: its own format, kubeadm's bootstrap provider, multi-part messages.
const FOR_CLOUD_INIT: [&[u8]; 4] =
    [b"#cloud-config", b"## template: jinja", b"Content-Type: multipart/", b"MIME-Version:"];
/// The operating system in the header of gzip is unknown, on each host.
const UNKNOWN_SYSTEM: u8 = 255;

/// The largest user data that a cloud takes, in bytes before Base64.
#[derive(Clone, Copy, Debug)]
pub struct UserDataLimit {
    /// The service that has the limit.
    pub service: &'static str,
    /// The limit.
    pub bytes: usize,
    /// The limit of compressed data, if they are encoded in another way.
    pub compressed: usize,
}

impl UserDataLimit {
    /// One limit for all data.
    pub const fn new(service: &'static str, bytes: usize) -> Self {
        Self { service, bytes, compressed: bytes }
    }

    /// The user data as they are, if they fit. Longer ones are compressed if cloud-init reads them, which decompresses gzip:
    /// equal data are compressed to equal bytes.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: they do not fit.
    pub fn fit<'a>(&self, data: &'a [u8]) -> Result<Cow<'a, [u8]>, DriverError> {
        let (size, Self { service, bytes, compressed }) = (data.len(), self);
        if size <= *bytes {
            return Ok(Cow::Borrowed(data));
        }
        let mut text = format!("userData has {size} bytes, and {service} takes at most {bytes}");
        if is_for_cloud_init(data) {
            let smaller = gzip(data);
            if smaller.len() <= *compressed {
                return Ok(Cow::Owned(smaller));
            }
            let size = smaller.len();
            text = format!("{text}; compressed it has {size}, and may have at most {compressed}");
        }
        let message = format!("{text}: shorten it, or let it download the rest");
        Err(DriverError::new(Code::InvalidArgument, message))
    }
}

/// The beginning of the user data is one that cloud-init reads.
pub fn is_for_cloud_init(data: &[u8]) -> bool {
    FOR_CLOUD_INIT.iter().any(|start| data.starts_with(start))
}

/// The data, compressed: equal data to equal bytes.
pub fn gzip(data: &[u8]) -> Vec<u8> {
    let header = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut writer = header.write(Vec::new(), Compression::best());
    // A vector takes everything.
    let written = writer.write_all(data).and_then(|()| writer.finish());
    written.unwrap_or_else(|_| data.to_vec())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use rstest::rstest;

    use super::*;

    const LIMIT: UserDataLimit = UserDataLimit::new("EC2", 1000);

    /// Data of a length that compress well.
    fn data(start: &str, size: usize) -> Vec<u8> {
        let mut all = start.as_bytes().to_vec();
        all.resize(size, b'x');
        all
    }

    #[rstest]
    #[case::cloud_config("#cloud-config\n")]
    #[case::kubeadm("## template: jinja\n#cloud-config\n")]
    #[case::multi_part("Content-Type: multipart/mixed; boundary=\"x\"\n")]
    #[case::multi_part_with_its_version_first("MIME-Version: 1.0\n")]
    fn what_cloud_init_reads_is_compressed_if_it_does_not_fit(#[case] start: &str) {
        assert_eq!(LIMIT.fit(&data(start, 1000)).unwrap(), data(start, 1000));
        let sent = LIMIT.fit(&data(start, 1001)).unwrap().into_owned();
        assert_eq!(
            (&sent[..10], sent.len() < 100),
            (&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255][..], true),
            "no time in it"
        );
        let mut read = Vec::new();
        GzDecoder::new(&sent[..]).read_to_end(&mut read).unwrap();
        assert_eq!(read, data(start, 1001));
        assert_eq!(LIMIT.fit(&data(start, 1001)).unwrap(), sent, "equal data, equal bytes");
    }

    #[rstest]
    #[case::script("#!/bin/sh\n")]
    #[case::ignition("{\"ignition\": {}}")]
    #[case::compressed_already("\u{1f}")]
    fn other_data_are_refused_if_they_do_not_fit(#[case] start: &str) {
        let error = LIMIT.fit(&data(start, 1001)).unwrap_err();
        let text = "userData has 1001 bytes, and EC2 takes at most 1000: shorten it, or let it download the rest";
        assert_eq!((error.code, error.message.as_str()), (Code::InvalidArgument, text));
        assert_eq!(LIMIT.fit(&data(start, 1000)).unwrap(), data(start, 1000));
    }

    #[test]
    fn data_that_do_not_fit_when_they_are_compressed_are_refused() {
        let limit = UserDataLimit { compressed: 20, ..LIMIT };
        let error = limit.fit(&data("#cloud-config\n", 1001)).unwrap_err();
        assert!(error.message.contains("; compressed it has"), "{error}");
        assert!(error.message.contains(", and may have at most 20: shorten it"), "{error}");
    }
}
