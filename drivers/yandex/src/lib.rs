//! The driver of Yandex Cloud.
