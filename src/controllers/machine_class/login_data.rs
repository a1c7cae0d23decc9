//! The data of two Secrets that the driver of a class gets.

use mcm_driver::SecretData;

const USER_DATA: &str = "userData";

/// The data of a class whose `secretRef` names `other`, and whose `credentialsSecretRef` names `credentials`.
///
/// Credentials and hosts come from one Secret as a whole. Otherwise an author who may not read a Secret could send its password to
/// a host in another one. That Secret is `credentials`, unless `other` repeats it and has more: Gardener's classes of metal-stack
/// have the URL only there. The user data are those of `credentials`, or else of `other`, as in the Go programs.
pub fn login_data(other: Option<SecretData>, credentials: Option<SecretData>) -> SecretData {
    let (mut other, mut credentials) = match (other, credentials) {
        (Some(other), Some(credentials)) => (other, credentials),
        (other, credentials) => return credentials.or(other).unwrap_or_default(),
    };
    let user_data = credentials.0.remove(USER_DATA).or_else(|| other.0.remove(USER_DATA));
    let is_repeated = credentials.0.iter().all(|(key, value)| other.0.get(key) == Some(value));
    let mut login = if is_repeated { other } else { credentials };
    login.0.remove(USER_DATA);
    login.0.extend(user_data.map(|data| (USER_DATA.to_owned(), data)));
    login
}

/// The keys of `other` that [`login_data`] leaves out.
pub fn unused_keys(other: &SecretData, credentials: &SecretData) -> Vec<String> {
    let login = login_data(Some(other.clone()), Some(credentials.clone()));
    other.0.keys().filter(|key| !login.0.contains_key(*key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn data(pairs: &[(&str, &str)]) -> SecretData {
        SecretData(pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
    }

    /// The Secret of a victim, and one with another host for its credentials.
    #[rstest]
    #[case::openstack(
        &[("username", "victim"), ("password", "word"), ("authURL", "https://own")],
        &[("authURL", "https://attacker"), ("insecure", "true")]
    )]
    #[case::openstack_without_a_host(&[("username", "victim"), ("password", "word")], &[("authURL", "https://attacker")])]
    #[case::openstack_without_checks(
        &[("username", "victim"), ("password", "word"), ("authURL", "https://own")],
        &[("insecure", "true")]
    )]
    #[case::vsphere(
        &[("vsphereUsername", "victim"), ("vspherePassword", "word"), ("vsphereHost", "own")],
        &[("vsphereHost", "attacker"), ("vsphereInsecureSSL", "1")]
    )]
    #[case::metal_stack(&[("metalAPIHMac", "word"), ("metalAPIURL", "https://own")], &[("metalAPIURL", "https://attacker")])]
    #[case::aws(&[("accessKeyID", "victim"), ("secretAccessKey", "word")], &[("endpointURL", "https://attacker")])]
    #[case::aws_role(
        &[("workloadIdentityTokenFile", "/victim"), ("roleARN", "victim")],
        &[("roleARN", "attacker")]
    )]
    #[case::gcp(&[("serviceAccountJSON", "word")], &[("endpointURL", "https://attacker")])]
    #[case::azure(&[("clientID", "victim"), ("clientSecret", "word")], &[("authorityURL", "https://attacker")])]
    #[case::alicloud(&[("accessKeyID", "victim"), ("accessKeySecret", "word")], &[("endpointURL", "https://attacker")])]
    #[case::equinix_metal(&[("apiToken", "word")], &[("endpointURL", "https://attacker")])]
    #[case::yandex(&[("serviceAccountJSON", "word"), ("folderID", "victim")], &[("endpointURL", "https://attacker")])]
    #[case::kubevirt(&[("kubeconfig", "victim")], &[("kubeconfig", "attacker")])]
    fn credentials_of_one_secret_do_not_meet_the_host_of_another(
        #[case] victim: &[(&str, &str)],
        #[case] attacker: &[(&str, &str)],
    ) {
        let with_user_data = |pairs: &[(&str, &str)]| data(&[pairs, &[("userData", "u")]].concat());
        assert_eq!(login_data(Some(with_user_data(victim)), Some(data(attacker))).0, with_user_data(attacker).0);
        assert_eq!(login_data(Some(data(attacker)), Some(with_user_data(victim))).0, with_user_data(victim).0);
    }

    const USER_DATA: (&str, &str) = ("userData", "u");
    const URL: (&str, &str) = ("metalAPIURL", "https://api.example.com");
    const HMAC: (&str, &str) = ("metalAPIHMac", "h");

    /// The layouts of Gardener's extensions.
    #[rstest]
    #[case::most(&[USER_DATA], &[URL, HMAC], &[USER_DATA, URL, HMAC])]
    #[case::metal_stack(&[USER_DATA, URL, ("metalAPIKey", ""), HMAC], &[HMAC], &[USER_DATA, URL, ("metalAPIKey", ""), HMAC])]
    #[case::equinix_metal(&[USER_DATA, ("apiToken", "t")], &[("apiToken", "t")], &[USER_DATA, ("apiToken", "t")])]
    #[case::new_credentials(&[USER_DATA, ("apiToken", "old")], &[("apiToken", "new")], &[USER_DATA, ("apiToken", "new")])]
    #[case::own_user_data(&[("userData", "other")], &[USER_DATA, HMAC], &[USER_DATA, HMAC])]
    #[case::user_data_only(&[URL, HMAC], &[USER_DATA], &[USER_DATA, URL, HMAC])]
    fn one_secret_has_the_login_and_one_the_user_data(
        #[case] other: &[(&str, &str)],
        #[case] credentials: &[(&str, &str)],
        #[case] expected: &[(&str, &str)],
    ) {
        assert_eq!(login_data(Some(data(other)), Some(data(credentials))).0, data(expected).0);
    }

    #[test]
    fn keys_that_are_left_out_are_named() {
        assert_eq!(unused_keys(&data(&[USER_DATA, URL]), &data(&[HMAC])), ["metalAPIURL"]);
        assert_eq!(unused_keys(&data(&[USER_DATA, HMAC]), &data(&[HMAC])), [""; 0]);
    }
}
