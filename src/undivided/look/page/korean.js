// The interface in Korean, by the English texts.

export const KOREAN = {};
