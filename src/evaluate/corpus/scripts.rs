//! The same kind of notes in other languages and scripts.

use super::{Fact, fill};
use crate::evaluate::Rng;

const NUMBERS: &[&str] = &["3", "5", "14", "21", "30", "45", "60", "90", "120", "365"];
const HOURS: &[&str] =
    &["8:00", "8:45", "9:30", "10:15", "11:00", "11:45", "12:30", "13:00", "14:30", "15:15", "16:00", "17:15"];
const ROOMS: &[&str] = &["1", "2", "4", "7", "11", "12", "15", "20", "23", "31", "42", "50"];

const SLOTS: &[(&str, &[&str])] = &[("n", NUMBERS), ("hour", HOURS), ("room", ROOMS)];

const FORMS: &[&str] = &[
    "Die Besprechung ist am Freitag um {hour} in Raum {room}.",
    "Der Bericht über {n} Bestellungen liegt in Raum {room}.",
    "La reunión del equipo es a las {hour} en la sala {room}.",
    "El usuario pidió {n} etiquetas para el almacén de la sala {room}.",
    "La livraison de {n} cartons arrive à {hour}, salle {room}.",
    "Совещание отдела начинается в {hour} в комнате {room}.",
    "Отчёт хранится {n} дней, копия лежит в комнате {room}.",
    "Η συνάντηση ξεκινά στις {hour} στην αίθουσα {room}.",
    "Το αρχείο κρατά {n} αντίγραφα στην αίθουσα {room}.",
    "يبدأ اجتماع الفريق الساعة {hour} في القاعة {room}.",
    "يحتفظ النظام بالتقارير لمدة {n} يوما في القاعة {room}.",
    "बैठक {hour} बजे कमरा {room} में शुरू होती है।",
    "रिपोर्ट {n} दिन तक कमरा {room} में रखी जाती है।",
    "项目会议{hour}在{room}号房间开始。",
    "系统把报告保存{n}天，备份在{room}号房间。",
    "会議は{hour}に{room}号室で始まります。",
    "レポートは{n}日間、{room}号室に保存されます。",
    "팀 회의는 {hour}에 {room}호실에서 시작합니다.",
    "보고서는 {n}일 동안 {room}호실에 보관됩니다.",
];

/// Number of forms.
pub(super) const COUNT: usize = FORMS.len();

/// A note of one form.
pub(super) fn of_form(at: usize, rng: &mut Rng) -> Fact {
    let [text, _] = fill([FORMS[at], ""], SLOTS, rng);
    Fact { template: format!("own/script/{at}"), text, question: None }
}

/// A random note; no question, since the queries of the corpus are English.
pub(super) fn fact(rng: &mut Rng) -> Fact {
    of_form(rng.below(COUNT), rng)
}
