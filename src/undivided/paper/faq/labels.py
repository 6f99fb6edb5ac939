"""Korean labels of the pictures. Names of code and of layers stay as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONTS = ("NanumGothic", "NanumBarunGothic", "Noto Sans CJK KR", "Noto Sans KR", "Malgun Gothic", "Apple SD Gothic Neo")
"""Fonts with Korean letters, the first that is installed is used."""

KOREAN = {
    "variance of the scores": "점수의 분산",
    "largest softmax weight": "가장 큰 소프트맥스 가중치",
    "gradient of the softmax": "소프트맥스의 기울기",
    "decoder input: the target, shifted right": "디코더 입력: 오른쪽으로 민 타깃",
    "to be predicted": "예측할 것",
    "inference, one by one": "추론, 하나씩",
    "training, all at once": "학습, 한꺼번에",
    "operations that wait for each other, training": "서로 기다리는 연산, 학습",
    "recurrent layer": "순환 레이어",
    "self-attention": "셀프 어텐션",
    "target tokens": "타깃 토큰",
    "time a token, training = #": "토큰당 시간, 학습 = #",
    "% of places": "자리의 %",
    "pad": "패딩",
    "padding in batches": "배치 안의 패딩",
    "weights, mask": "가중치, 마스크 있음",
    "weights, no mask": "가중치, 마스크 없음",
    "source: n = # keys and values": "소스: n = #개의 키와 값",
    "target: m = # queries": "타깃: m = #개의 쿼리",
    "cosine of two different words at one place": "한 자리의 서로 다른 두 단어의 코사인",
    "length of the vectors": "벡터의 길이",
    "not multiplied": "곱하지 않음",
    "position": "위치",
    "word × √d_model": "단어 × √d_model",
    "word, not multiplied": "단어, 곱하지 않음",
    "add": "더하기",
    "concatenate": "이어 붙이기",
    "loss in training": "학습 손실",
    "steps": "단계",
    "index": "번호 그대로",
    "learned": "학습된 위치",
    "longest taught": "가르친 가장 긴 길이",
    "none": "없음",
    "right: the word before": "정답률: 바로 앞 단어",
    "sinusoidal": "사인파",
    "words in the sentence": "문장의 단어 수",
    "English": "영어",
    "Korean": "한국어",
    "change of the word's state\nas subject and object swap": "주어와 목적어를 바꿀 때\n단어 상태의 변화",
    "gae\n(dog)": "개",
    "ga": "가",
    "goyangi\n(cat)": "고양이",
    "reul": "를",
    "jjonneunda": "쫓는다",
    "no positions": "위치 없음",
    "chance": "우연",
    "feed-forward\nwith ReLU": "피드포워드\nReLU 있음",
    "feed-forward\nwithout ReLU": "피드포워드\nReLU 없음",
    "no\nfeed-forward": "피드포워드\n없음",
    "right: sum of two words, after training": "정답률: 두 단어의 합, 학습 후",
    "two attention layers: share no matrix can be": "어텐션 두 레이어: 행렬로 쓸 수 없는 몫",
    "change of a sentence's states by …": "문장 상태의 변화: …",
    "later words,\nmasked": "가려진\n뒤 단어",
    "more padding": "더 많은 패딩",
    "other sentences\nin the batch": "배치의\n다른 문장",
    "relative to the states": "상태에 대한 비율",
    "sentences in the batch": "배치의 문장 수",
    "… by other sentences in the batch": "… 배치의 다른 문장에 의한 것",
    "GRU, gate open": "GRU, 게이트 열림",
    "LSTM, gate open": "LSTM, 게이트 열림",
    "attention": "어텐션",
    "feed-forward": "피드포워드",
    "random": "무작위",
    "sorted": "정렬",
    "distance from the input to the last output": "입력에서 마지막 출력까지의 거리",
    "norm of the gradient": "기울기의 노름",
    "one head": "헤드 하나",
    "# heads": "헤드 #개",
    "Q and K\nshared": "Q와 K\n공유",
    "one\nshared": "하나를\n공유",
    "three": "셋",
    "right: where the next word stands": "정답률: 다음 단어의 자리",
    "weight on oneself, before training": "자기 자신에 대한 가중치, 학습 전",
    "dimensions": "차원",
    "expected": "예상",
    "random vectors": "무작위 벡터",
    "fresh model": "학습 전",
    "trained model": "학습 후",
    "in a model of # dimensions": "#차원 모델에서",
    "mean size of the cosine": "코사인 크기의 평균",
    "positions,\npositions": "위치,\n위치",
    "words,\npositions": "단어,\n위치",
    "words,\nwords": "단어,\n단어",
    "a dimension over the places": "자리에 따른 한 차원",
    "dimension": "차원",
    "dimension #": "차원 #",
    "place": "자리",
    "rows of # places": "#자리의 행",
    "from place #": "#번 자리부터",
    "million multiplications, # tokens": "곱셈(백만), 토큰 #개",
    "one-hot": "원-핫",
    "table": "표",
    "vocabulary": "어휘",
    "cosine of its vectors\nin two sentences": "두 문장에서의\n벡터의 코사인",
    "different meanings": "뜻이 다름",
    "one meaning": "뜻이 같음",
    "embedding": "임베딩",
    "layer #": "레이어 #",
    "sseuda (write, wear, bitter)": "쓰다",
    "cosine of different words": "다른 단어와의 코사인",
    "gradient at the first layer": "첫 레이어의 기울기",
    "layers": "레이어",
    "with residuals": "잔차 연결 있음",
    "without": "없음",
    "change of its state": "상태의 변화",
    "omitted": "빠뜨림",
    "swapped": "서로 바꿈",
    "trimmed": "잘라 냄",
    "without positions": "위치 없음",
    "word": "단어",
    "mean slope of the non-linearity": "비선형 함수의 평균 기울기",
    "size of the state": "상태의 크기",
    "distance": "거리",
    "singular values #": "특잇값 #",
    "million parameters, d = #": "파라미터(백만), d = #",
    "MB in one layer": "레이어 하나의 MB",
    "attention weights, n²": "어텐션 가중치, n²",
    "states, n": "상태, n",
    "tokens": "토큰",
    "counted": "센 값",
    "decoder": "디코더",
    "encoder": "인코더",
    "read in encoder-decoder attention": "인코더-디코더 어텐션이 읽는 것",
    "wavelength": "파장",
}
"""A `#` stands for a number."""

UNCHANGED = frozenset({
    "d_k", "q·k", "q·k / √d_k", "</s>", "<s>", "a", "b", "c", "d", "g", "w#", "d_model", "× √d_model", "the", "cat", "dog",
    "chases", "BatchNorm", "LayerNorm", "GRU", "LSTM", "tanh", "tanh, U × #", "I", "walk", "my", "id #", "apple", "RNN",
    "Transformer", "ReLU", "h' = Uh", "h' = tanh(Uh)", "i", "#π · #^(#i/d)", "rnn", "gru", "lstm",
})  # fmt: skip
"""Labels that are the same in every language: symbols, code, the words of examples."""

NUMBER = re.compile(r"\d+(?:\.\d+)?")


def translate(label: str) -> str:
    """A label in Korean; one that is not in the list as it is."""
    numbers = iter(NUMBER.findall(label))
    found = KOREAN.get(NUMBER.sub("#", label))
    return label if found is None else re.sub("#", lambda _: next(numbers), found)


def translate_labels(figure: Figure) -> None:
    """Put Korean labels into a picture that was drawn with English ones."""
    from matplotlib.text import Text

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            names = [label.get_text() for label in axis.get_ticklabels()]
            if any(translate(name) != name for name in names):
                axis.set_ticks(axis.get_ticklocs(), [translate(name) for name in names])
    for text in figure.findobj(Text):
        if isinstance(text, Text):
            text.set_text(translate(text.get_text()))


def korean_font() -> str:
    """The name of an installed font with Korean letters; empty if there is none."""
    from matplotlib.font_manager import fontManager

    installed = {entry.name for entry in fontManager.ttflist}
    return next((name for name in FONTS if name in installed), "")
