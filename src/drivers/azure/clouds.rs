//! The clouds of Azure and their endpoints.

/// A cloud with accounts and an API that others do not share.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cloud {
    /// Its name in a class.
    pub name: &'static str,
    /// Where tokens come from.
    pub login: &'static str,
    /// The Resource Manager.
    pub api: &'static str,
    /// The receiver that a token for the Resource Manager names.
    pub audience: &'static str,
}

pub(crate) const PUBLIC: &Cloud = &Cloud {
    name: "AzurePublic",
    login: "https://login.microsoftonline.com/",
    api: "https://management.azure.com",
    audience: "https://management.core.windows.net/",
};
const CHINA: &Cloud = &Cloud {
    name: "AzureChina",
    login: "https://login.chinacloudapi.cn/",
    api: "https://management.chinacloudapi.cn",
    audience: "https://management.core.chinacloudapi.cn",
};
const GOVERNMENT: &Cloud = &Cloud {
    name: "AzureGovernment",
    login: "https://login.microsoftonline.us/",
    api: "https://management.usgovcloudapi.net",
    audience: "https://management.core.usgovcloudapi.net",
};

/// All of them.
pub(crate) const CLOUDS: [&Cloud; 3] = [PUBLIC, CHINA, GOVERNMENT];
/// Their names.
pub(crate) const NAMES: [&str; 3] = [PUBLIC.name, CHINA.name, GOVERNMENT.name];
/// The hosts of their Resource Managers.
pub(crate) const API_HOSTS: [&str; 3] =
    ["management.azure.com", "management.chinacloudapi.cn", "management.usgovcloudapi.net"];
/// The hosts with their tokens.
pub(crate) const LOGIN_HOSTS: [&str; 3] =
    ["login.microsoftonline.com", "login.chinacloudapi.cn", "login.microsoftonline.us"];

/// The cloud with a name, spelled exactly.
pub(crate) fn named(name: &str) -> Option<&'static Cloud> {
    CLOUDS.into_iter().find(|cloud| cloud.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cloud_has_its_endpoints() {
        for ((cloud, api), login) in CLOUDS.into_iter().zip(API_HOSTS).zip(LOGIN_HOSTS) {
            assert_eq!((cloud.api, cloud.login), (&*format!("https://{api}"), &*format!("https://{login}/")));
            assert_eq!(named(cloud.name), Some(cloud));
        }
        assert_eq!(named("azurepublic"), None, "letters count");
    }
}
