// What the page says, in English and Korean. `{name}` is replaced by a value; a value is only ever shown as text.

const ENGLISH = {
  language: "English",
  work: "Translate text",
  from: "Translate from",
  to: "Translate to",
  auto: "Detect language",
  detected: "{language} (detected)",
  swap: "Swap the languages",
  noSwap: "There is no model for the other direction",
  text: "Text to translate",
  placeholder: "Type or paste text",
  translation: "Translation",
  nothing: "The translation appears here",
  clear: "Clear",
  copy: "Copy",
  copied: "Copied",
  notCopied: "The browser did not allow copying",
  count: "{count} / {limit}",
  countAlone: "{count}",
  countRead: "{count} of at most {limit} characters",
  toDark: "Dark colours",
  toLight: "Light colours",
  tongue: "Language of this page",
  working: "Translating …",
  pivot: "through {language}",
  keys: "Ctrl+Enter translates at once. In the translation, the arrow keys move from word to word, Enter shows other words, Esc goes back.",
  models: "Models: {models}",
  private: "Text goes to this server only. The history stays in this browser.",

  wordHint: "Select a word of the translation to see what else fits there and which words it was read from.",
  sentences: "Other translations",
  otherWords: "Instead of “{word}”",
  noOthers: "The model is sure here: nothing else was likely.",
  own: "Your own words",
  ownGo: "Continue",
  chosen: "Continues with “{word}”.",
  undo: "Undo",
  read: "Read from",
  readNothing: "This model has no attention to show.",
  end: "end of the sentence",
  lookInside: "Look inside the model",
  insideTitle: "Inside the model",
  close: "Close",
  loading: "Asking the model …",

  filesTitle: "Translate a document",
  drop: "Drop files here, or",
  pick: "choose files",
  sending: "Sending: {percent} %",
  translatingFile: "Translating …",
  waiting: "Waiting",
  ready: "Ready: {translated} translated, {left} left as they were",
  download: "Download {name}",
  remove: "Remove {name} from the list",
  cancel: "Cancel {name}",
  cancelled: "Cancelled",
  fileProgress: "Progress of {name}",

  historyTitle: "History",
  historyEmpty: "Translations of this browser appear here.",
  historyClear: "Clear the history",
  more: "Show all {count}",

  tooLong: "The text has {count} characters; this server takes at most {limit}. Shorten it, or translate it as a document.",
  tooLarge: "This is more than the server takes at once. Send less, or a smaller file.",
  busy: "The server has too many requests. It is tried again in {seconds} s.",
  busyLong: "Too many requests. Try again in {minutes} min.",
  offline: "The server does not answer. Is it running?",
  slow: "The server took too long. Try again, or send less text.",
  failed: "The server failed: {message}",
  refused: "{message}",
  keyNeeded: "This server needs an API key.",
  keyWrong: "The server does not accept this API key.",
  keyLabel: "API key",
  keySave: "Use this key",
  noModels: "This server has no languages yet.",

  verdicts: {
    "copied": "left as it is",
    "unknown-script": "letters that the model has never seen",
    "looped": "it repeats itself",
    "truncated": "it was cut: the model did not end by itself",
    "length-ratio": "its length is unusual: something may be missing or made up",
    "placeholder-lost": "a placeholder, number or address was lost or changed",
    "tag-misplaced": "markup may be in the wrong place",
    "low-confidence": "the model is unsure",
  },
  check: "Check “{text}”: {what}.",
};

const KOREAN = {
  language: "한국어",
  work: "텍스트 번역",
  from: "원본 언어",
  to: "번역할 언어",
  auto: "언어 감지",
  detected: "{language} (감지됨)",
  swap: "언어 바꾸기",
  noSwap: "반대 방향의 모델이 없습니다",
  text: "번역할 텍스트",
  placeholder: "텍스트를 입력하거나 붙여 넣으세요",
  translation: "번역 결과",
  nothing: "번역 결과가 여기에 표시됩니다",
  clear: "지우기",
  copy: "복사",
  copied: "복사했습니다",
  notCopied: "브라우저에서 복사를 허용하지 않았습니다",
  count: "{count} / {limit}",
  countAlone: "{count}",
  countRead: "최대 {limit}자 중 {count}자",
  toDark: "어두운 화면",
  toLight: "밝은 화면",
  tongue: "이 페이지의 언어",
  working: "번역하고 있습니다…",
  pivot: "경유 언어: {language}",
  keys: "Ctrl+Enter를 누르면 바로 번역합니다. 번역 결과에서는 화살표 키로 단어 사이를 이동하고, Enter로 다른 단어를 보고, Esc로 돌아갑니다.",
  models: "모델: {models}",
  private: "텍스트는 이 서버로만 전송됩니다. 기록은 이 브라우저에만 저장됩니다.",

  wordHint: "번역 결과에서 단어를 선택하면 그 자리에 올 수 있는 다른 단어와 모델이 참고한 원문 단어를 볼 수 있습니다.",
  sentences: "다른 번역",
  otherWords: "“{word}” 대신",
  noOthers: "모델이 확신하는 자리입니다. 다른 후보가 거의 없습니다.",
  own: "직접 입력",
  ownGo: "이어서 번역",
  chosen: "“{word}”부터 이어서 번역했습니다.",
  undo: "되돌리기",
  read: "참고한 원문",
  readNothing: "이 모델에는 표시할 어텐션이 없습니다.",
  end: "문장 끝",
  lookInside: "모델 내부 보기",
  insideTitle: "모델 내부",
  close: "닫기",
  loading: "모델에 묻고 있습니다…",

  filesTitle: "문서 번역",
  drop: "파일을 여기에 끌어다 놓거나",
  pick: "파일 선택",
  sending: "전송 중: {percent}%",
  translatingFile: "번역하고 있습니다…",
  waiting: "대기 중",
  ready: "완료: {translated}개 번역, {left}개 유지",
  download: "{name} 내려받기",
  remove: "목록에서 {name} 제거",
  cancel: "{name} 취소",
  cancelled: "취소했습니다",
  fileProgress: "{name} 진행 상황",

  historyTitle: "기록",
  historyEmpty: "이 브라우저에서 번역한 내용이 여기에 표시됩니다.",
  historyClear: "기록 지우기",
  more: "{count}개 모두 보기",

  tooLong: "텍스트가 {count}자입니다. 이 서버는 한 번에 {limit}자까지 번역합니다. 텍스트를 줄이거나 문서로 번역하세요.",
  tooLarge: "서버가 한 번에 받을 수 있는 크기를 넘었습니다. 양을 줄이거나 더 작은 파일을 보내세요.",
  busy: "서버에 요청이 너무 많습니다. {seconds}초 후에 다시 시도합니다.",
  busyLong: "요청이 너무 많습니다. {minutes}분 후에 다시 시도하세요.",
  offline: "서버가 응답하지 않습니다. 서버가 실행 중인지 확인하세요.",
  slow: "서버 응답이 너무 오래 걸립니다. 다시 시도하거나 텍스트를 줄이세요.",
  failed: "서버 오류: {message}",
  refused: "{message}",
  keyNeeded: "이 서버를 사용하려면 API 키가 필요합니다.",
  keyWrong: "서버가 이 API 키를 허용하지 않습니다.",
  keyLabel: "API 키",
  keySave: "이 키 사용",
  noModels: "이 서버에는 아직 언어가 없습니다.",

  verdicts: {
    "copied": "원문을 그대로 두었습니다",
    "unknown-script": "모델이 학습하지 않은 문자가 있습니다",
    "looped": "같은 말을 반복합니다",
    "truncated": "번역이 끝나지 않고 잘렸습니다",
    "length-ratio": "길이가 평소와 다릅니다. 빠지거나 덧붙은 내용이 있을 수 있습니다",
    "placeholder-lost": "자리표시자, 숫자 또는 주소가 빠지거나 바뀌었습니다",
    "tag-misplaced": "마크업의 위치가 틀릴 수 있습니다",
    "low-confidence": "모델이 확신하지 못합니다",
  },
  check: "“{text}” 확인 필요: {what}.",
};

export const TONGUES = { en: ENGLISH, ko: KOREAN };

let current = "en";

export function setTongue(tongue) {
  current = tongue in TONGUES ? tongue : "en";
  document.documentElement.lang = current;
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = say(element.dataset.text);
}

export function tongue() {
  return current;
}

export function say(key, values = {}) {
  return TONGUES[current][key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

// What is to be said of a verdict; null where there is nothing to check.
export function sayVerdict(name) {
  return TONGUES[current].verdicts[name] ?? null;
}

export function sayNumber(value) {
  return new Intl.NumberFormat(current).format(value);
}

// The name of a language in the language of the page; that of the server where the browser knows none.
export function sayLanguage(code, name) {
  try {
    const found = new Intl.DisplayNames([current], { type: "language", fallback: "none" }).of(code);
    return found ?? name ?? code;
  } catch {
    return name ?? code;
  }
}
