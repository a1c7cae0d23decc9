//! The Secret of a class: which ECS, and with which access key.

use std::borrow::Cow;

use mcm_driver::{
    Code, DriverError, SecretData, SecretPolicy,
    cloud::{RequestAuthenticator, SecretReader, UserDataLimit},
};
use reqwest::Url;

use super::{endpoint, signature::Signer};

const ID: [&str; 2] = ["alicloudAccessKeyID", "accessKeyID"];
const SECRET: [&str; 2] = ["alicloudAccessKeySecret", "accessKeySecret"];
const USER_DATA: &str = "userData";
const USER_DATA_LIMIT: UserDataLimit = UserDataLimit::new("ECS", 32 << 10);

/// An endpoint with an access key. A Secret with a new key is another login. There is no `Debug`, because of the key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    pub url: Url,
    id: String,
    secret: String,
}

impl Login {
    /// Reads a Secret. Credentials come from it alone, never from the process.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the Secret has no access key, or an endpoint that is not allowed; or the region is invalid.
    pub fn from_secret(secret: &SecretData, region: &str, policy: &SecretPolicy) -> Result<Self, DriverError> {
        let secrets = SecretReader(secret);
        let required = |keys: &[&str; 2]| {
            let missing = || invalid(format!("the secret of the class has neither {} nor {}", keys[0], keys[1]));
            secrets.trimmed(keys).ok_or_else(missing)
        };
        let (id, key) = (required(&ID)?, required(&SECRET)?);
        // It is part of a header.
        if !id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',') {
            return Err(invalid(format!("{} in the secret of the class is not the ID of an access key", ID[0])));
        }
        let url = match secrets.endpoint() {
            Some(url) => endpoint::of_secret(&url, policy)?,
            None => endpoint::of_region(region)?,
        };
        Ok(Self { url, id, secret: key })
    }

    pub fn authentication(&self) -> Box<dyn RequestAuthenticator> {
        Box::new(Signer::new(&self.id, &self.secret))
    }
}

/// The user data of a VM; empty if there are none.
///
/// # Errors
/// [`Code::InvalidArgument`]: they are too long.
pub(crate) fn user_data(secret: &SecretData) -> Result<Cow<'_, [u8]>, DriverError> {
    USER_DATA_LIMIT.fit(SecretReader(secret).raw(USER_DATA).unwrap_or_default())
}

fn invalid(text: String) -> DriverError {
    DriverError::new(Code::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::testing::secret_policy;
    use rstest::rstest;

    const KEY: (&str, &str) = ("alicloudAccessKeyID", " LTAI1\n");
    const KEY_SECRET: (&str, &str) = ("alicloudAccessKeySecret", " secret-1\n");

    fn secret(data: &[(&str, &str)]) -> SecretData {
        SecretData(data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
    }

    #[rstest]
    #[case::trimmed(&[KEY, KEY_SECRET], "")]
    #[case::other_spellings(&[("accessKeyID", "LTAI1"), ("accessKeySecret", "secret-1")], "")]
    #[case::the_first_spelling_wins(&[KEY, KEY_SECRET, ("accessKeyID", "x"), ("accessKeySecret", "y")], "")]
    #[case::an_empty_one_does_not_hide_the_next(&[("alicloudAccessKeyID", ""), ("accessKeyID", "LTAI1"), KEY_SECRET], "")]
    #[case::no_id(&[KEY_SECRET], "neither alicloudAccessKeyID nor accessKeyID")]
    #[case::no_secret(&[KEY, ("accessKeySecret", " ")], "neither alicloudAccessKeySecret nor accessKeySecret")]
    #[case::no_header(&[("accessKeyID", "LTAI1\nx-evil: 1"), KEY_SECRET], "not the ID of an access key")]
    #[case::no_credential(&[("accessKeyID", "LTAI1,SignedHeaders="), KEY_SECRET], "not the ID of an access key")]
    #[case::elsewhere(&[KEY, KEY_SECRET, ("endpointURL", "https://ecs.example.com")], "--allowed-cloud-endpoints")]
    fn a_secret_has_an_access_key(#[case] data: &[(&str, &str)], #[case] expected: &str) {
        match Login::from_secret(&secret(data), "cn-beijing", &secret_policy()) {
            Ok(login) => {
                let found = (login.url.as_str(), login.id.as_str(), login.secret.as_str(), expected);
                assert_eq!(found, ("https://ecs.cn-beijing.aliyuncs.com/", "LTAI1", "secret-1", ""));
            }
            Err(error) => {
                assert!(error.message.contains(expected) && !expected.is_empty(), "{error}");
                assert_eq!(error.code, Code::InvalidArgument);
                assert!(!error.message.contains("LTAI1"), "{error}");
            }
        }
    }

    #[test]
    fn a_secret_may_name_the_endpoint() {
        let data = secret(&[KEY, KEY_SECRET, ("endpointURL", "https://ecs-vpc.cn-beijing.aliyuncs.com")]);
        let login = Login::from_secret(&data, "cn-hangzhou", &SecretPolicy::default()).map(|login| login.url);
        assert_eq!(login.unwrap().as_str(), "https://ecs-vpc.cn-beijing.aliyuncs.com/");
    }

    #[rstest]
    #[case(USER_DATA_LIMIT.bytes, true)]
    #[case(USER_DATA_LIMIT.bytes + 1, false)]
    fn user_data_have_at_most_32_kib(#[case] size: usize, #[case] is_accepted: bool) {
        let data = SecretData([("userData".to_owned(), vec![b'x'; size])].into());
        assert_eq!(user_data(&data).is_ok(), is_accepted);
    }
}
