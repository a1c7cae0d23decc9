//! The keys of a Secret: each may have several spellings.

use crate::{code::Code, error::DriverError, interface::SecretData};

const USER_DATA: &str = "userData";
/// The endpoint of the cloud's main service, for private clouds with its API.
const ENDPOINT: [&str; 2] = ["endpointURL", "endpointUrl"];

/// Reads a Secret. Values that are not text count as absent.
#[derive(Clone, Copy)]
pub struct SecretReader<'a>(pub &'a SecretData);

impl<'a> SecretReader<'a> {
    /// The first value that is not empty, without surrounding white space. The reference takes the first that is
    /// present, and then has nothing.
    pub fn trimmed(&self, spellings: &[&str]) -> Option<String> {
        spellings.iter().find_map(|key| {
            let value = std::str::from_utf8(self.0.0.get(*key)?).ok()?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        })
    }

    /// The value of a key, as it is.
    pub fn raw(&self, key: &str) -> Option<&'a [u8]> {
        self.0.0.get(key).map(Vec::as_slice)
    }

    /// The user data of a VM, as it is.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the key is missing.
    pub fn user_data(&self) -> Result<&'a [u8], DriverError> {
        self.raw(USER_DATA).filter(|data| !data.is_empty()).ok_or_else(|| {
            DriverError::new(Code::InvalidArgument, format!("the secret of the class has no {USER_DATA}"))
        })
    }

    /// The endpoint that the Secret names, if it names one.
    pub fn endpoint(&self) -> Option<String> {
        self.trimmed(&ENDPOINT)
    }

    /// A key is present, with any value.
    pub fn has(&self, key: &str) -> bool {
        self.0.0.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::first(&[("a", "1"), ("b", "2")], Some("1"))]
    #[case::second(&[("b", "2")], Some("2"))]
    #[case::an_empty_one_does_not_hide_the_next(&[("a", " \n"), ("b", "2")], Some("2"))]
    #[case::trimmed(&[("a", " 1\n")], Some("1"))]
    #[case::letters_count(&[("A", "1")], None)]
    #[case(&[], None)]
    fn the_first_spelling_with_a_value_wins(#[case] data: &[(&str, &str)], #[case] expected: Option<&str>) {
        assert_eq!(SecretReader(&secret(data)).trimmed(&["a", "b"]).as_deref(), expected);
    }

    fn secret(data: &[(&str, &str)]) -> SecretData {
        SecretData(data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
    }

    #[rstest]
    #[case(&[("userData", " as it is\n")], Some(" as it is\n"))]
    #[case(&[("userData", "")], None)]
    #[case(&[], None)]
    fn user_data_must_be_there_and_is_not_trimmed(#[case] data: &[(&str, &str)], #[case] expected: Option<&str>) {
        assert_eq!(SecretReader(&secret(data)).user_data().ok(), expected.map(str::as_bytes));
    }

    #[test]
    fn a_secret_may_name_the_endpoint() {
        let given = secret(&[("endpointURL", "http://ec2.example.com \n")]);
        assert_eq!(SecretReader(&given).endpoint().as_deref(), Some("http://ec2.example.com"));
        assert_eq!(SecretReader(&secret(&[])).endpoint(), None);
    }

    #[test]
    fn binary_values_are_absent_unless_read_as_bytes() {
        let data = SecretData([("a".to_owned(), vec![0xff])].into());
        let secrets = SecretReader(&data);
        assert_eq!((secrets.trimmed(&["a"]), secrets.raw("a"), secrets.raw("b")), (None, Some(&[0xff][..]), None));
        assert_eq!((secrets.has("a"), secrets.has("b")), (true, false));
    }
}
