//! The Secret of a class: an authorised key of a service account, the folder of its VMs, and the user data.

use mcm_driver::{Code, DriverError, SecretData, SecretPolicy, cloud::SecretReader};
use reqwest::Url;
use serde::Deserialize;

use crate::endpoints::DOMAINS;

const KEY: &str = "serviceAccountJSON";
const FOLDER: &str = "folderID";
const USER_DATA: &str = "userData";
/// The API takes no longer IDs.
const LONGEST_ID: usize = 50;
/// The most bytes of a value in the metadata of an instance.
const MOST_USER_DATA: usize = 256 * 1024;

/// An authorised key of a service account, as `yc iam key create` writes it. There is no `Debug`, because of the key.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize)]
pub(crate) struct Key {
    pub id: String,
    #[serde(rename = "service_account_id", alias = "serviceAccountId")]
    pub account: String,
    /// In PEM form, maybe after other lines.
    #[serde(alias = "privateKey")]
    pub private_key: String,
}

/// A folder with credentials. A Secret with new ones is another login.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    pub key: Key,
    pub folder: String,
    /// Where the endpoints of all services are listed, if it is not the usual place.
    pub endpoint: Option<Url>,
}

impl Login {
    /// Reads a Secret. Credentials come from it alone, never from the process.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the Secret has no usable key, no folder, or an endpoint that is not allowed.
    pub(crate) fn from_secret(secret: &SecretData, policy: &SecretPolicy) -> Result<Self, DriverError> {
        let secrets = SecretReader(secret);
        let Some(text) = secrets.trimmed(&[KEY]) else {
            return refuse(format!("the secret of the class has no {KEY}"));
        };
        // An error of the parser could quote the key.
        let Some(key) = serde_json::from_str::<Key>(&text).ok().filter(Key::is_complete) else {
            let text =
                "is not an authorised key of a service account in JSON, with id, service_account_id and private_key";
            return refuse(format!("{KEY} in the secret of the class {text}"));
        };
        let Some(folder) = secrets.trimmed(&[FOLDER]) else {
            return refuse(format!("the secret of the class has no {FOLDER}"));
        };
        if folder.len() > LONGEST_ID || !folder.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return refuse(format!("{FOLDER} in the secret of the class is not the ID of a folder"));
        }
        let endpoint = secrets.endpoint().map(|url| endpoint_of(&url, policy)).transpose()?;
        Ok(Self { key, folder, endpoint })
    }
}

impl Key {
    fn is_complete(&self) -> bool {
        [&self.id, &self.account, &self.private_key].iter().all(|text| !text.trim().is_empty())
    }
}

fn endpoint_of(url: &str, policy: &SecretPolicy) -> Result<Url, DriverError> {
    policy.check_url("endpointURL", url, &DOMAINS)?;
    Url::parse(url).or_else(|_| refuse("endpointURL in the secret of the class is not a URL".to_owned()))
}

/// The user data, as they are.
///
/// # Errors
/// [`Code::InvalidArgument`]: the key is missing, they are not a text, which JSON could not hold, or too long for the API.
pub(crate) fn user_data(secret: &SecretData) -> Result<&str, DriverError> {
    let Some(data) = SecretReader(secret).raw(USER_DATA) else {
        return refuse(format!("the secret of the class has no {USER_DATA}"));
    };
    if data.len() > MOST_USER_DATA {
        let length = data.len();
        return refuse(format!("{USER_DATA} in the secret of the class have {length} bytes: at most {MOST_USER_DATA}"));
    }
    std::str::from_utf8(data)
        .or_else(|_| refuse(format!("{USER_DATA} in the secret of the class are not a text in UTF-8")))
}

fn refuse<T>(text: String) -> Result<T, DriverError> {
    Err(DriverError::new(Code::InvalidArgument, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::PRIVATE_KEY;
    use mcm_driver::testing::secret_policy;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn key(changes: Value) -> String {
        let mut key = json!({
            "id": "ajekey", "service_account_id": "ajeaccount", "private_key": PRIVATE_KEY, "key_algorithm": "RSA_2048",
            "created_at": "2026-01-01T00:00:00Z", "public_key": "x",
        });
        key.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        key.to_string()
    }

    fn login(data: &[(&str, &str)]) -> Result<Login, DriverError> {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        Login::from_secret(&SecretData(data.collect()), &secret_policy())
    }

    #[rstest]
    #[case::as_written(key(json!({})))]
    #[case::in_camel_case(key(json!({"service_account_id": null, "serviceAccountId": "ajeaccount"})).replace(r#","service_account_id":null"#, ""))]
    #[case::with_white_space(format!("\n{}\n", key(json!({}))))]
    fn a_secret_has_a_key_and_a_folder(#[case] text: String) {
        let login = login(&[("serviceAccountJSON", &text), ("folderID", " b1gfolder\n")]).unwrap();
        assert_eq!((login.key.id.as_str(), login.key.account.as_str()), ("ajekey", "ajeaccount"));
        assert_eq!((login.folder.as_str(), login.endpoint), ("b1gfolder", None));
    }

    #[rstest]
    #[case::no_key(None, "b1g", "", "no serviceAccountJSON")]
    #[case::no_json(Some("top-secret".to_owned()), "b1g", "", "not an authorised key")]
    #[case::no_account(Some(key(json!({"service_account_id": ""}))), "b1g", "", "not an authorised key")]
    #[case::of_a_user(Some(json!({"id": "x", "user_account_id": "y", "private_key": "top-secret"}).to_string()), "b1g", "", "not an authorised key")]
    #[case::no_folder(Some(key(json!({}))), " ", "", "no folderID")]
    #[case::no_id(Some(key(json!({}))), "a/b", "", "not the ID of a folder")]
    #[case::other_endpoint(Some(key(json!({}))), "b1g", "https://evil.example.com", "--allowed-cloud-endpoints")]
    #[case::without_tls(Some(key(json!({}))), "b1g", "http://api.cloud.yandex.net", "--allowed-cloud-endpoints")]
    fn a_secret_that_cannot_be_used_is_refused_without_a_quote(
        #[case] key: Option<String>,
        #[case] folder: &str,
        #[case] endpoint: &str,
        #[case] expected: &str,
    ) {
        let mut data = vec![("folderID", folder), ("endpointURL", endpoint)];
        data.extend(key.as_deref().map(|key| ("serviceAccountJSON", key)));
        let error = login(&data).err().unwrap();
        assert!(error.message.contains(expected) && !error.message.contains("top-secret"), "{error}");
    }

    #[rstest]
    #[case("https://api.cloud.yandex.net")]
    #[case("https://api.yandexcloud.kz")]
    #[case::of_a_fake("http://127.0.0.1:8080")]
    fn a_secret_may_name_the_place_of_the_endpoints(#[case] url: &str) {
        let key = key(json!({}));
        let login = login(&[("serviceAccountJSON", &key), ("folderID", "b1g"), ("endpointURL", url)]).unwrap();
        assert_eq!(login.endpoint.unwrap().as_str().trim_end_matches('/'), url);
    }

    #[rstest]
    #[case::as_they_are(Some(b" #cloud-config\n".to_vec()), Ok(" #cloud-config\n"))]
    #[case::empty(Some(vec![]), Ok(""))]
    #[case::missing(None, Err("has no userData"))]
    #[case::binary(Some(vec![0xff]), Err("not a text in UTF-8"))]
    #[case::at_most_so_long(Some(vec![b'x'; MOST_USER_DATA + 1]), Err("have 262145 bytes"))]
    fn user_data_are_a_text_that_may_be_empty(#[case] data: Option<Vec<u8>>, #[case] expected: Result<&str, &str>) {
        let secret = SecretData(data.into_iter().map(|data| ("userData".to_owned(), data)).collect());
        match (user_data(&secret), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(expected)) => assert!(error.message.contains(expected), "{error}"),
            (found, _) => panic!("{found:?}"),
        }
    }
}
