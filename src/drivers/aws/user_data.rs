//! User data of VMs: those of the Secret, or a script that fetches them from Secrets Manager.

use std::borrow::Cow;

use super::spec::Spec;
use mcm_driver::{
    DriverError, SecretData,
    cloud::{SecretReader, UserDataLimit, gzip},
    code::Code,
};

const LIMIT: UserDataLimit = UserDataLimit::new("EC2", 16 * 1024);
/// The largest secret, in bytes.
const LARGEST_SECRET: usize = 64 * 1024;
/// Secrets of mcm begin with it.
const PREFIX: &str = "mcm/";
/// A boothook of cloud-init.
const SCRIPT: &str = include_str!("user_data.sh");
/// The first line of user data that cloud-init renders.
const TEMPLATE: &[u8] = b"## template: jinja";
const CLOUD_CONFIG: &[u8] = b"#cloud-config";

/// User data of a VM.
#[derive(Debug)]
pub(super) struct UserData<'a> {
    /// Bytes that EC2 gets, and that every process in the VM may read.
    pub sent: Cow<'a, [u8]>,
    /// Bytes that Secrets Manager gets, for the script in `sent`.
    pub stored: Option<Vec<u8>>,
}

impl<'a> UserData<'a> {
    /// User data in the Secret of a class, for the machine with a UID. `endpoint` is that of the Secret.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: there are none, or AWS or cloud-init would refuse them.
    pub(super) fn from_secret(
        spec: &Spec,
        endpoint: Option<&str>,
        uid: &str,
        secret: &'a SecretData,
    ) -> Result<Self, DriverError> {
        let data = SecretReader(secret).user_data()?;
        if !spec.has_user_data_store {
            return Ok(Self { sent: LIMIT.fit(data)?, stored: None });
        }
        let script = script(&spec.region, &secret_of(uid), endpoint);
        Ok(Self { sent: Cow::Owned(script.into_bytes()), stored: Some(stored(data)?) })
    }
}

/// The name of the secret with the user data of the machine with a UID.
pub(super) fn secret_of(uid: &str) -> String {
    format!("{PREFIX}{uid}")
}

/// User data as they are stored. They are compressed, so that more fit, and so that the VM notices what is damaged.
fn stored(data: &[u8]) -> Result<Vec<u8>, DriverError> {
    let invalid = |message: String| DriverError::new(Code::InvalidArgument, message);
    if !is_cloud_config(data) {
        let message = "providerSpec.userDataStore takes userData that begin with #cloud-config, or with ## template: \
                       jinja and #cloud-config; Ignition and scripts cannot be fetched: remove the field";
        return Err(invalid(message.to_owned()));
    }
    let compressed = gzip(data);
    let size = compressed.len();
    if size > LARGEST_SECRET {
        let message = format!(
            "userData has {} bytes, compressed {size}, and Secrets Manager takes at most {LARGEST_SECRET}: shorten it, \
             or let it download the rest",
            data.len()
        );
        return Err(invalid(message));
    }
    Ok(compressed)
}

/// cloud-init may read data as a file of its configuration.
fn is_cloud_config(data: &[u8]) -> bool {
    let mut lines = data.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let start = if first.starts_with(TEMPLATE) { lines.next().unwrap_or_default() } else { first };
    // `#cloud-config-archive` and `#cloud-config-jsonp` are other formats.
    start.strip_prefix(CLOUD_CONFIG).is_some_and(|rest| !rest.starts_with(b"-"))
}

/// The script that fetches a secret. It contains nothing secret.
fn script(region: &str, secret: &str, endpoint: Option<&str>) -> String {
    let endpoint = endpoint.map(|url| format!("--endpoint-url {}", quoted(url))).unwrap_or_default();
    SCRIPT.replace("@REGION@", &quoted(region)).replace("@SECRET@", &quoted(secret)).replace("@ENDPOINT@", &endpoint)
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("#cloud-config\nruncmd: []", true)]
    #[case::of_kubeadm("## template: jinja\n#cloud-config\n", true)]
    #[case::with_another_line_end("#cloud-config\r\n", true)]
    #[case::archive("#cloud-config-archive\n", false)]
    #[case::template_of_a_script("## template: jinja\n#!/bin/sh\n", false)]
    #[case::template_of_nothing("## template: jinja", false)]
    #[case::ignition("{\"ignition\": {}}", false)]
    #[case::nothing("", false)]
    fn a_cloud_config_is_recognized(#[case] data: &str, #[case] expected: bool) {
        assert_eq!(is_cloud_config(data.as_bytes()), expected);
    }

    #[rstest]
    #[case("eu-west-1", "'eu-west-1'")]
    #[case("x'; reboot '", r"'x'\''; reboot '\'''")]
    fn a_text_is_one_word_of_a_shell(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(quoted(text), expected);
    }

    #[test]
    fn each_place_in_the_script_is_filled() {
        let script = script("eu-west-1", "mcm/u", Some("https://aws.example"));
        assert!(script.contains("--region 'eu-west-1' --endpoint-url 'https://aws.example' --cli"), "{script}");
        assert!(["@REGION@", "@SECRET@", "@ENDPOINT@"].iter().all(|place| !script.contains(place)), "{script}");
        assert!(script.len() < 4096, "{} bytes", script.len());
    }
}
