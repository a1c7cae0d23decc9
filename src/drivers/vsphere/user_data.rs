//! The user data in the form that the operating system of a template reads: as vApp properties or, for a template without them,
//! as guest information.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mcm_driver::{Code, DriverError};
use serde_json::{Value, json};

use super::place::Property;

const IGNITION: &str = "guestinfo.ignition.config.data";
/// Begins a script, which cloud-init would take for one; mcm makes a file of it, as the reference does.
const SCRIPT: &[u8] = b"#!/";
const SSH_KEYS: &str = "ssh_authorized_keys:";
/// Units of network cards as they are named on vSphere.
const NETWORK: &str = "[Match]\nName=ens192\n\n[Network]\nDHCP=yes\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n";
/// `0755` and `0644`.
const FOLDER_MODE: u32 = 493;
const FILE_MODE: u32 = 420;

/// A password for the console of VMs, from the environment of the process.
#[derive(Clone, Default)]
pub(crate) struct ConsolePasswords {
    pub plain: Option<String>,
    /// For operating systems with Ignition.
    pub hash: Option<String>,
}

/// The user data of a VM.
pub(crate) struct UserData<'a> {
    /// Host name of the VM.
    pub name: &'a str,
    pub data: &'a [u8],
    pub ssh_keys: &'a [String],
    pub passwords: &'a ConsolePasswords,
}

/// Settings of a VM that carry its user data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Values of vApp properties, by their keys and IDs.
    pub properties: Vec<(i64, String, String)>,
    /// Extra configuration.
    pub extra: BTreeMap<String, String>,
}

/// How an operating system reads its user data.
enum Reader {
    /// Ignition, with the folder of an installer that runs the user data.
    Ignition(&'static str),
    CloudInit,
}

impl Reader {
    fn of_guest(guest_id: &str) -> Self {
        match guest_id {
            "coreos64Guest" => Self::Ignition("/var/lib/coreos-install"),
            // Flatcar
            "other4xLinux64Guest" => Self::Ignition("/var/lib/flatcar-install"),
            _ => Self::CloudInit,
        }
    }
}

impl UserData<'_> {
    /// The settings for a VM with this guest ID and these properties. `given` are the properties of the class.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the template lacks a property, or the user data contradict the class.
    pub(crate) fn carried(
        &self,
        guest_id: &str,
        properties: Option<&[Property]>,
        given: Option<&BTreeMap<String, String>>,
    ) -> Result<Carried, DriverError> {
        let reader = Reader::of_guest(guest_id);
        match (given, properties) {
            (Some(given), Some(properties)) => edited(properties, given),
            (Some(given), None) if given.is_empty() => Ok(Carried::default()),
            (Some(_), None) => Err(wrong(
                "the template has no vApp configuration, so providerSpec.vapp has no effect: remove it".to_owned(),
            )),
            (None, Some(properties)) => edited(properties, &self.properties(&reader)?),
            (None, None) => Ok(Carried { extra: self.guest_information(&reader)?, ..Carried::default() }),
        }
    }

    /// As vApp properties.
    fn properties(&self, reader: &Reader) -> Result<BTreeMap<String, String>, DriverError> {
        let mut properties = BTreeMap::new();
        match reader {
            Reader::Ignition(folder) => {
                properties.insert(IGNITION.to_owned(), self.ignition(folder)?);
            }
            Reader::CloudInit => {
                properties.insert("hostname".to_owned(), self.name.to_owned());
                properties.insert("user-data".to_owned(), STANDARD.encode(self.cloud_init()?));
                properties.extend(self.passwords.plain.clone().map(|password| ("password".to_owned(), password)));
            }
        }
        Ok(properties)
    }

    /// As guest information, which cloud-init and Ignition read where there are no vApp properties.
    fn guest_information(&self, reader: &Reader) -> Result<BTreeMap<String, String>, DriverError> {
        let texts = match reader {
            Reader::Ignition(folder) => vec![(IGNITION, self.ignition(folder)?.into_bytes())],
            Reader::CloudInit => {
                let metadata = json!({"instance-id": self.name, "local-hostname": self.name}).to_string();
                vec![("guestinfo.userdata", self.cloud_init()?), ("guestinfo.metadata", metadata.into_bytes())]
            }
        };
        let encoded = |(key, text): (&str, Vec<u8>)| {
            [(key.to_owned(), STANDARD.encode(text)), (format!("{key}.encoding"), "base64".to_owned())]
        };
        Ok(texts.into_iter().flat_map(encoded).collect())
    }

    /// Writes the user data and the host name into files. User data that are for Ignition are sent as they are.
    fn ignition(&self, folder: &str) -> Result<String, DriverError> {
        let is_ignition = |value: &Value| value["ignition"]["version"].is_string();
        if serde_json::from_slice(self.data).is_ok_and(|value| is_ignition(&value)) {
            return std::str::from_utf8(self.data)
                .map(str::to_owned)
                .map_err(|_| wrong("userData in the secret of the class are no text in UTF-8".to_owned()));
        }
        let hash = self.passwords.hash.as_deref().unwrap_or("*");
        let data = STANDARD.encode(self.data);
        let document = json!({
            "ignition": {"config": {}, "timeouts": {}, "version": "2.1.0"},
            "networkd": {"units": [{"contents": NETWORK, "name": "00-ens192.network"}]},
            "passwd": {"users": [{"name": "core", "passwordHash": hash, "sshAuthorizedKeys": self.ssh_keys}]},
            "storage": {
                "directories": [{"filesystem": "root", "path": folder, "mode": FOLDER_MODE}],
                "files": [
                    {"filesystem": "root", "path": "/etc/hostname", "mode": FILE_MODE,
                     "contents": {"source": format!("data:,{}", self.name)}},
                    {"filesystem": "root", "path": format!("{folder}/user_data"), "mode": FILE_MODE,
                     "contents": {"source": format!("data:text/plain;charset=utf-8;base64,{data}")}},
                ],
            },
            "systemd": {},
        });
        Ok(document.to_string())
    }

    /// The user data, with the keys of users.
    fn cloud_init(&self) -> Result<Vec<u8>, DriverError> {
        let mut data = if self.data.starts_with(SCRIPT) { script(self.data) } else { self.data.to_vec() };
        if self.ssh_keys.is_empty() {
            return Ok(data);
        }
        if data.windows(SSH_KEYS.len()).any(|part| part == SSH_KEYS.as_bytes()) {
            return Err(wrong(format!(
                "userData in the secret of the class have {SSH_KEYS} already: remove providerSpec.sshKeys"
            )));
        }
        data.extend_from_slice(format!("\n{SSH_KEYS}\n").as_bytes());
        for key in self.ssh_keys {
            data.extend_from_slice(format!("- {}\n", Value::from(key.as_str())).as_bytes());
        }
        Ok(data)
    }
}

/// A cloud-config that runs a script once.
fn script(text: &[u8]) -> Vec<u8> {
    const PATH: &str = "/root/cloud-init-script";
    let content = STANDARD.encode(text);
    format!(
        "#cloud-config\n\nwrite_files:\n- encoding: b64\n  content: {content}\n  owner: root:root\n  path: {PATH}\n  permissions: \
         '0555'\n\nruncmd:\n- {PATH}\n- rm {PATH}\n"
    )
    .into_bytes()
}

/// Gives all properties that may be changed a value: the wanted one, the default, or a blank.
fn edited(properties: &[Property], wanted: &BTreeMap<String, String>) -> Result<Carried, DriverError> {
    let is_missing = |id: &&String| !properties.iter().any(|property| property.is_configurable && &property.id == *id);
    let missing: Vec<&str> = wanted.keys().filter(is_missing).map(String::as_str).collect();
    if !missing.is_empty() {
        let names = missing.join(", ");
        return Err(wrong(format!("the template has no vApp property {names} that may be changed")));
    }
    let value = |property: &Property| {
        let default = if property.default.is_empty() { " " } else { &property.default };
        wanted.get(&property.id).map_or(default, String::as_str).to_owned()
    };
    let changed = properties.iter().filter(|property| property.is_configurable);
    let properties = changed.map(|property| (property.key, property.id.clone(), value(property))).collect();
    Ok(Carried { properties, extra: BTreeMap::new() })
}

fn wrong(text: String) -> DriverError {
    DriverError::new(Code::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn property(key: i64, id: &str, is_configurable: bool, default: &str) -> Property {
        Property { key, id: id.to_owned(), is_configurable, default: default.to_owned() }
    }

    fn carried(
        data: &str,
        keys: &[&str],
        guest: &str,
        properties: Option<&[Property]>,
        given: Option<&[(&str, &str)]>,
    ) -> Result<Carried, DriverError> {
        let ssh_keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let passwords = ConsolePasswords::default();
        let user_data = UserData { name: "m", data: data.as_bytes(), ssh_keys: &ssh_keys, passwords: &passwords };
        let given = given.map(|all| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        user_data.carried(guest, properties, given.as_ref())
    }

    fn cloud_init() -> Vec<Property> {
        vec![
            property(0, "hostname", true, ""),
            property(1, "user-data", true, ""),
            property(2, "password", true, ""),
            property(3, "instance-id", true, "id-ovf"),
            property(4, "fixed", false, "x"),
        ]
    }

    fn decoded(text: &str) -> String {
        String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
    }

    #[test]
    fn cloud_init_gets_properties_and_all_others_their_defaults() {
        let found = carried("#cloud-config\n", &[], "ubuntu64Guest", Some(&cloud_init()), None).unwrap();
        let entry = |key, id: &str, value: &str| (key, id.to_owned(), value.to_owned());
        let expected = [
            entry(0, "hostname", "m"),
            entry(1, "user-data", &STANDARD.encode("#cloud-config\n")),
            entry(2, "password", " "),
            entry(3, "instance-id", "id-ovf"),
        ];
        assert_eq!((found.properties.as_slice(), found.extra.len()), (expected.as_slice(), 0));
    }

    #[test]
    fn a_script_is_written_to_a_file_and_run_once() {
        let found = carried("#!/bin/sh\ntrue\n", &[], "ubuntu64Guest", Some(&cloud_init()), None).unwrap();
        let content = STANDARD.encode("#!/bin/sh\ntrue\n");
        let expected = format!(
            "#cloud-config\n\nwrite_files:\n- encoding: b64\n  content: {content}\n  owner: root:root\n  path: /root/cloud-init-script\n  permissions: '0555'\n\nruncmd:\n- /root/cloud-init-script\n- rm /root/cloud-init-script\n"
        );
        assert_eq!(decoded(&found.properties[1].2), expected);
    }

    #[test]
    fn keys_of_users_are_added_quoted() {
        let keys = ["ssh-rsa AAAA a\"b", "k2"];
        let found = carried("#cloud-config", &keys, "", Some(&cloud_init()), None).unwrap();
        let expected = "#cloud-config\nssh_authorized_keys:\n- \"ssh-rsa AAAA a\\\"b\"\n- \"k2\"\n";
        assert_eq!(decoded(&found.properties[1].2), expected);
        let error = carried("ssh_authorized_keys: []", &keys, "", Some(&cloud_init()), None).unwrap_err();
        assert!(error.message.contains("remove providerSpec.sshKeys"), "{error}");
    }

    #[rstest]
    #[case("coreos64Guest", "/var/lib/coreos-install")]
    #[case("other4xLinux64Guest", "/var/lib/flatcar-install")]
    fn ignition_writes_the_user_data_for_an_installer(#[case] guest: &str, #[case] folder: &str) {
        let properties = [property(7, IGNITION, true, "")];
        let found = carried("#!/bin/sh\n", &["k\"1"], guest, Some(&properties), None).unwrap();
        assert_eq!((found.properties.len(), found.properties[0].0), (1, 7));
        let document: Value = serde_json::from_str(&found.properties[0].2).unwrap();
        assert_eq!(document["ignition"]["version"], "2.1.0");
        assert_eq!(
            document["passwd"]["users"][0],
            json!({"name": "core", "passwordHash": "*", "sshAuthorizedKeys": ["k\"1"]})
        );
        assert_eq!(document["storage"]["directories"][0], json!({"filesystem": "root", "path": folder, "mode": 493}));
        assert_eq!(document["storage"]["files"][0]["contents"]["source"], "data:,m");
        assert_eq!(document["storage"]["files"][1]["path"], format!("{folder}/user_data"));
        let source = format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode("#!/bin/sh\n"));
        assert_eq!(document["storage"]["files"][1]["contents"]["source"], source);
        let units = json!([{"contents": NETWORK, "name": "00-ens192.network"}]);
        assert_eq!((&document["networkd"]["units"], &document["systemd"]), (&units, &json!({})));
    }

    #[test]
    fn user_data_for_ignition_are_sent_as_they_are() {
        let (properties, data) = ([property(7, IGNITION, true, "")], r#"{"ignition": {"version": "3.3.0"}}"#);
        let found = carried(data, &[], "coreos64Guest", Some(&properties), None).unwrap();
        assert_eq!(found.properties[0].2, data);
    }

    #[test]
    fn a_template_without_a_vapp_configuration_gets_guest_information() {
        let found = carried("#cloud-config\n", &[], "ubuntu64Guest", None, None).unwrap();
        assert_eq!(decoded(&found.extra["guestinfo.userdata"]), "#cloud-config\n");
        assert_eq!(found.extra["guestinfo.userdata.encoding"], "base64");
        let metadata: Value = serde_json::from_str(&decoded(&found.extra["guestinfo.metadata"])).unwrap();
        assert_eq!(metadata, json!({"instance-id": "m", "local-hostname": "m"}));
        let found = carried("x", &[], "coreos64Guest", None, None).unwrap();
        assert!(decoded(&found.extra[IGNITION]).contains("2.1.0") && found.properties.is_empty());
    }

    #[test]
    fn properties_of_a_class_replace_those_of_the_user_data() {
        let found = carried("x", &[], "", Some(&cloud_init()), Some(&[("hostname", "h")])).unwrap();
        let values: Vec<&str> = found.properties.iter().map(|(.., value)| value.as_str()).collect();
        assert_eq!(values, ["h", " ", " ", "id-ovf"]);
    }

    #[rstest]
    #[case::absent(Some(cloud_init()), &[("other", "x"), ("another", "y")], "no vApp property another, other")]
    #[case::fixed(Some(cloud_init()), &[("fixed", "x")], "no vApp property fixed")]
    #[case::no_configuration(None, &[("hostname", "x")], "has no vApp configuration")]
    fn a_property_that_the_template_lacks_is_named(
        #[case] properties: Option<Vec<Property>>,
        #[case] given: &[(&str, &str)],
        #[case] expected: &str,
    ) {
        let error = carried("x", &[], "", properties.as_deref(), Some(given)).unwrap_err();
        assert!(error.message.contains(expected) && error.code == Code::InvalidArgument, "{error}");
    }

    #[test]
    fn a_console_password_is_set_where_the_process_has_one() {
        let passwords = ConsolePasswords { plain: Some("p".to_owned()), hash: Some("$1$h".to_owned()) };
        let user_data = UserData { name: "m", data: b"x", ssh_keys: &[], passwords: &passwords };
        let found = user_data.carried("", Some(&cloud_init()), None).unwrap();
        assert_eq!(found.properties[2].2, "p");
        assert!(user_data.ignition("/f").unwrap().contains(r#""passwordHash":"$1$h""#));
    }
}
