//! The Secret of a class: which vCenter, and with which credentials.

use mcm_driver::{
    Code, DriverError, SecretData, SecretPolicy,
    cloud::{SecretReader, TlsOptions},
};
use reqwest::Url;

const HOST: &str = "vsphereHost";
const USER: &str = "vsphereUsername";
const PASSWORD: &str = "vspherePassword";
const INSECURE: &str = "vsphereInsecureSSL";

/// A vCenter with credentials. A Secret with new ones is another login. There is no `Debug`, because of the password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    /// Of its API.
    pub url: Url,
    pub user: String,
    password: String,
    /// The certificate of the host is not verified.
    is_insecure: bool,
}

impl Login {
    /// Reads a Secret. Credentials come from it alone, never from the process, and go to the host in the same Secret alone.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the Secret has no usable host, user or password.
    pub(crate) fn from_secret(secret: &SecretData, policy: &SecretPolicy) -> Result<Self, DriverError> {
        let refuse = |text: String| DriverError::new(Code::InvalidArgument, text);
        let required = |key: &'static str| {
            SecretReader(secret).trimmed(&[key]).ok_or_else(|| refuse(format!("the secret of the class has no {key}")))
        };
        let host = required(HOST)?;
        // The reference takes a host, maybe with a port. A URL is for hosts without TLS.
        let url = if host.contains("://") { host } else { format!("https://{host}") };
        let insecure = SecretReader(secret).trimmed(&[INSECURE]).unwrap_or_default();
        let is_insecure = insecure == "1" || insecure.eq_ignore_ascii_case("true");
        let url = policy.check_own_url(HOST, &url, is_insecure.then_some(INSECURE))?;
        if !["", "/", "/sdk", "/sdk/"].contains(&url.path()) {
            return Err(refuse(format!("{HOST} in the secret of the class has a path: it is the name of a host")));
        }
        let url = api_of(&url).ok_or_else(|| refuse(format!("{HOST} in the secret of the class is no host")))?;
        let (user, password) = (
            required(USER)?,
            password(secret).ok_or_else(|| refuse(format!("the secret of the class has no {PASSWORD}")))?,
        );
        Ok(Self { url, user, password, is_insecure })
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    pub(crate) fn tls(&self) -> TlsOptions {
        TlsOptions { is_insecure: self.is_insecure, ..TlsOptions::default() }
    }
}

/// The password without line breaks at its end, which tools add to files. White space may be a part of it.
fn password(secret: &SecretData) -> Option<String> {
    let text = std::str::from_utf8(SecretReader(secret).raw(PASSWORD)?).ok()?.trim_end_matches(['\r', '\n']);
    (!text.is_empty()).then(|| text.to_owned())
}

/// The URL of the API of a host.
fn api_of(host: &Url) -> Option<Url> {
    let mut url = host.clone();
    url.path_segments_mut().ok()?.clear().push("sdk");
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::testing;
    use rstest::rstest;

    const USUAL: [(&str, &str); 2] = [("vsphereUsername", " admin\n"), ("vspherePassword", " secret-word \n")];

    fn login(data: &[(&str, &str)]) -> Result<Login, DriverError> {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        Login::from_secret(&SecretData(data.collect()), &testing::secret_policy())
    }

    #[rstest]
    #[case::host("vc.example.com", "https://vc.example.com/sdk")]
    #[case::port(" vc.example.com:8443\n", "https://vc.example.com:8443/sdk")]
    #[case::address("[2001:db8::1]", "https://[2001:db8::1]/sdk")]
    #[case::url("https://vc.example.com/sdk", "https://vc.example.com/sdk")]
    #[case::allowed_without_tls("http://127.0.0.1:8989", "http://127.0.0.1:8989/sdk")]
    #[case::without_tls("http://vc.example.com", "--allowed-cloud-endpoints")]
    #[case::path("vc.example.com/other", "has a path")]
    #[case::credentials("user:word@vc.example.com", "is not an https URL")]
    #[case::nothing(" ", "has no vsphereHost")]
    fn a_secret_names_a_host(#[case] host: &str, #[case] expected: &str) {
        match login(&[&[("vsphereHost", host)], USUAL.as_slice()].concat()) {
            Ok(login) => {
                assert_eq!(login.url.as_str(), expected);
                assert_eq!((login.user.as_str(), login.password()), ("admin", " secret-word "));
            }
            Err(error) => {
                assert!(error.message.contains(expected), "{error}");
                assert_eq!(error.code, Code::InvalidArgument);
            }
        }
    }

    #[rstest]
    #[case("true", true)]
    #[case("TRUE", true)]
    #[case("1", true)]
    #[case("yes", false)]
    #[case("", false)]
    fn certificates_are_verified_unless_the_secret_says_otherwise(#[case] value: &str, #[case] expected: bool) {
        let data = [&[("vsphereHost", "127.0.0.1"), ("vsphereInsecureSSL", value)], USUAL.as_slice()].concat();
        assert_eq!(login(&data).unwrap().tls().is_insecure, expected);
        let data = [&[("vsphereHost", "vc"), ("vsphereInsecureSSL", value)], USUAL.as_slice()].concat();
        let error = login(&data).err().map(|error| error.message).unwrap_or_default();
        assert_eq!(error.contains("vsphereInsecureSSL"), expected, "a host that is not allowed: {error}");
    }

    #[rstest]
    #[case(0, "has no vsphereUsername")]
    #[case(1, "has no vspherePassword")]
    fn credentials_are_required(#[case] missing: usize, #[case] expected: &str) {
        let mut data = [&[("vsphereHost", "vc")], USUAL.as_slice()].concat();
        data[missing + 1].1 = "";
        let error = login(&data).err().unwrap();
        assert!(error.message.contains(expected), "{error}");
    }
}
