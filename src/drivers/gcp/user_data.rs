//! Metadata of a VM that carry its user data.
//!
//! Google's guest agent runs `startup-script`; cloud-init and Ignition read `user-data`.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, de::IgnoredAny};

use mcm_api::machine::Machine;
use mcm_driver::{
    DriverError, SecretData,
    cloud::{SecretReader, UserDataLimit, is_for_cloud_init},
    code::Code,
};

/// Key in the Secret of a class.
const KEY_IN_SECRET: &str = "userData";
/// Key of user data for cloud-init and Ignition.
pub(super) const USER_DATA: &str = "user-data";
const STARTUP_SCRIPT: &str = "startup-script";
/// Metadata are texts. cloud-init decodes the value of [`USER_DATA`] if this is `base64`.
const ENCODING: (&str, &str) = ("user-data-encoding", "base64");

/// The limit of one value of the metadata. Compressed data are encoded in Base64.
const LIMIT: UserDataLimit = UserDataLimit { service: "Compute Engine", bytes: 262_144, compressed: 262_144 / 4 * 3 };
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// One entry of the metadata: key and value.
pub(super) type Item = (&'static str, String);

/// The metadata for the user data in a Secret. `machine` is `None` if only the Secret is checked.
///
/// # Errors
/// [`Code::InvalidArgument`]: there is no user data, they are too long, or the bootstrap data of Cluster API are empty.
pub(super) fn items(secret: &SecretData, machine: Option<&Machine>) -> Result<Vec<Item>, DriverError> {
    let is_bootstrap_data = machine.is_some_and(|machine| machine.user_data_secret().is_some());
    let refuse = |text: String| Err(DriverError::new(Code::InvalidArgument, text));
    match SecretReader(secret).raw(KEY_IN_SECRET) {
        None => refuse(format!("the secret of the class has no {KEY_IN_SECRET}")),
        Some([]) if is_bootstrap_data => refuse("the bootstrap data Secret of the machine is empty".to_owned()),
        Some([]) => Ok(Vec::new()),
        Some(data) if is_bootstrap_data || is_for_an_init_system(data) => {
            Ok(for_an_init_system(&limit_of(data).fit(data)?))
        }
        Some(data) => Ok(vec![(STARTUP_SCRIPT, as_go_writes_it(&LIMIT.fit(data)?))]),
    }
}

/// Data that are not UTF-8 are encoded.
fn limit_of(data: &[u8]) -> UserDataLimit {
    match std::str::from_utf8(data) {
        Ok(_) => LIMIT,
        Err(_) => UserDataLimit { bytes: LIMIT.compressed, ..LIMIT },
    }
}

fn is_for_an_init_system(data: &[u8]) -> bool {
    is_for_cloud_init(data) || data.starts_with(&GZIP) || is_ignition(data)
}

/// A JSON object with the field `ignition`. A script may also begin with a brace.
fn is_ignition(data: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "ignition")]
        _ignition: IgnoredAny,
    }
    data.starts_with(b"{") && serde_json::from_slice::<Config>(data).is_ok()
}

/// Data that are not UTF-8, such as compressed ones, are encoded.
fn for_an_init_system(data: &[u8]) -> Vec<Item> {
    match std::str::from_utf8(data) {
        Ok(text) => vec![(USER_DATA, text.to_owned())],
        Err(_) => vec![(USER_DATA, STANDARD.encode(data)), (ENCODING.0, ENCODING.1.to_owned())],
    }
}

/// A text, with a replacement character for each invalid byte, as Go encodes JSON.
fn as_go_writes_it(data: &[u8]) -> String {
    let mut text = String::with_capacity(data.len());
    for chunk in data.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn secret(data: &[u8]) -> SecretData {
        SecretData([(KEY_IN_SECRET.to_owned(), data.to_vec())].into())
    }

    /// A Machine of the provider for Cluster API.
    fn infrastructure() -> Machine {
        let annotations = json!({"machine.mcm/user-data-secret": "boot"});
        serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": {}})).unwrap()
    }

    #[rstest]
    #[case::cloud_config("#cloud-config\nx: 1", USER_DATA)]
    #[case::kubeadm("## template: jinja\n#cloud-config\n\nwrite_files: []", USER_DATA)]
    #[case::ignition(r#"{"ignition": {"version": "2.3.0"}}"#, USER_DATA)]
    #[case::multi_part("Content-Type: multipart/mixed; boundary=\"x\"\nMIME-Version: 1.0\n\n--x", USER_DATA)]
    #[case::multi_part_with_its_version_first("MIME-Version: 1.0\nContent-Type: multipart/mixed\n", USER_DATA)]
    #[case::script("#!/bin/sh\necho", STARTUP_SCRIPT)]
    #[case::script_with_a_brace("{ echo; }", STARTUP_SCRIPT)]
    #[case::other_json(r#"{"a": 1}"#, STARTUP_SCRIPT)]
    #[case::as_gardener_compares(" #cloud-config", STARTUP_SCRIPT)]
    fn the_reader_is_known_by_the_beginning_and_is_an_init_system_for_bootstrap_data(
        #[case] data: &str,
        #[case] key: &str,
    ) {
        assert_eq!(items(&secret(data.as_bytes()), Some(&Machine::default())).unwrap(), [(key, data.to_owned())]);
        let bootstrap = items(&secret(data.as_bytes()), Some(&infrastructure())).unwrap();
        assert_eq!(bootstrap, [(USER_DATA, data.to_owned())]);
    }

    #[rstest]
    #[case::gzip(&[0x1f, 0x8b, 8, 0], false, "H4sIAA==")]
    #[case::gzip_of_cluster_api(&[0x1f, 0x8b, 8, 0], true, "H4sIAA==")]
    #[case::latin_1_of_cluster_api(b"#cloud-config\n# \xe4", true, "I2Nsb3VkLWNvbmZpZwojIOQ=")]
    #[case::latin_1_for_cloud_init(b"#cloud-config\n# \xe4", false, "I2Nsb3VkLWNvbmZpZwojIOQ=")]
    fn bytes_that_are_no_text_reach_the_init_system_encoded(
        #[case] data: &[u8],
        #[case] is_of_cluster_api: bool,
        #[case] encoded: &str,
    ) {
        let machine = if is_of_cluster_api { infrastructure() } else { Machine::default() };
        let expected = [(USER_DATA, encoded.to_owned()), ("user-data-encoding", "base64".to_owned())];
        assert_eq!(items(&secret(data), Some(&machine)).unwrap(), expected);
    }

    #[rstest]
    #[case::fits("#cloud-config\n", 262_144, Some("#cloud-config"))]
    #[case::compressed("#cloud-config\n", 262_145, Some("H4sI"))]
    #[case::script("#!/bin/sh\n", 262_145, None)]
    fn a_value_of_the_metadata_is_as_long_as_google_takes_it(
        #[case] start: &str,
        #[case] size: usize,
        #[case] sent: Option<&str>,
    ) {
        let data = format!("{start}{}", "x".repeat(size - start.len()));
        match (items(&secret(data.as_bytes()), None), sent) {
            (Ok(items), Some(sent)) => {
                assert!(items[0].0 == USER_DATA && items[0].1.starts_with(sent), "{:?}", items[0]);
                assert_eq!(items.len(), if sent == "H4sI" { 2 } else { 1 }, "the encoding beside it");
            }
            (Err(error), None) => assert!(error.message.contains("Compute Engine takes at most 262144"), "{error}"),
            (items, _) => panic!("{items:?}"),
        }
    }

    #[rstest]
    #[case(b"#!/bin/sh\n# \xe4\n", "#!/bin/sh\n# \u{fffd}\n")]
    #[case::each_byte(b"\xff\xfe", "\u{fffd}\u{fffd}")]
    #[case::of_a_cut_character(b"\xe2\x82", "\u{fffd}\u{fffd}")]
    fn a_script_that_is_no_utf_8_is_sent_as_from_go(#[case] data: &[u8], #[case] expected: &str) {
        assert_eq!(items(&secret(data), None).unwrap(), [(STARTUP_SCRIPT, expected.to_owned())]);
    }

    #[test]
    fn empty_user_data_are_no_metadata_but_cluster_api_always_has_bootstrap_data() {
        assert_eq!(items(&secret(b""), Some(&Machine::default())).unwrap(), []);
        assert_eq!(items(&secret(b""), Some(&infrastructure())).unwrap_err().code, Code::InvalidArgument);
        assert_eq!(items(&SecretData::default(), None).unwrap_err().code, Code::InvalidArgument);
    }
}
